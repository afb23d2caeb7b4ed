"""Where workers get tokenizers from; `toksplice.registry.Registry` is all of these."""

from __future__ import annotations

from typing import Protocol

from toksplice import Tokenizer


class TokenizerNames(Protocol):
    """Registered names, and the fingerprints that they stand for."""

    def names(self) -> tuple[str, ...]: ...

    def resolve(self, name_or_fingerprint: str) -> str: ...

    def name_of(self, fingerprint_hex: str) -> str: ...


class TokenizerSource(TokenizerNames, Protocol):
    """Loaded tokenizers. Every method may block, `get` for seconds."""

    def get(self, fingerprint_hex: str) -> Tokenizer: ...


def fingerprints(tokenizers: TokenizerNames) -> tuple[str, ...]:
    """Every tokenizer that is registered."""
    return tuple(sorted({tokenizers.resolve(name) for name in tokenizers.names()}))
