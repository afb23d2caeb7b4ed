"""A tokenizer: the reference, its identity, and what is known about cutting its texts."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toksplice.buffers import TokenBuffer
from toksplice.engine import NativeRoute, build
from toksplice.engine_session import EngineSession
from toksplice.errors import TokenizerError
from toksplice.fingerprint import fingerprint_of, parse
from toksplice.plan import Explanation, NotUnderstoodError, RouteC, longest_token_chars, plan
from toksplice.reference import U32, Encoded, Reference, Specials, encode_utf8
from toksplice.session import Session


class Tokenizer:
    """An exact tokenizer over one tokenizer.json. Thread-safe; sessions of it are independent."""

    def __init__(self, data: bytes, *, name: str = "") -> None:
        config = parse(data)
        self.name = name
        self.fingerprint = fingerprint_of(config)
        self.reference = Reference(data.decode("utf-8", "surrogatepass"))
        self._refuse_ambiguous_tokens(config.get("added_tokens") or ())
        self._longest_token_chars = longest_token_chars(config["model"])
        # The vocabulary is large, and the reference has its own, so only the rest is kept for the first session.
        self._config = {
            key: config.get(key) for key in ("normalizer", "pre_tokenizer", "post_processor", "added_tokens")
        }

        self._native: NativeRoute | None = None
        self._native_reason = ""
        try:
            self._native = build(data, config, self.reference)
        except NotUnderstoodError as error:
            self._native_reason = str(error)

    @property
    def native(self) -> NativeRoute | None:
        """The native engine, or None when only the reference serves this tokenizer."""
        return self._native

    def _refuse_ambiguous_tokens(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Raise `TokenizerError` when two added tokens are one after normalization: which of them the reference
        then takes changes from one load to the next."""
        contents = [entry["content"] for entry in entries if entry.get("normalized")]
        if len({self.reference.normalize(content) for content in contents}) < len(contents):
            raise TokenizerError("two added tokens have the same normalized form")

    @functools.cached_property
    def _plan(self) -> tuple[RouteC | None, Explanation]:
        return plan(self._config, self._longest_token_chars)

    @property
    def route(self) -> RouteC | None:
        """What route C needs, or None when every edit takes route D."""
        return self._plan[0]

    def explain(self) -> Explanation:
        """Which routes serve this tokenizer, and why."""
        return self._plan[1]

    @functools.cached_property
    def specials(self) -> Specials:
        """The ids put around a text by `add_special_tokens`; raises `TokenizerError` when they depend on it."""
        found = self.reference.specials()
        if found is None:
            raise TokenizerError("the post-processor does more than put ids around a text")
        return found

    def encode(self, text: str, *, add_special_tokens: bool = False) -> U32:
        """The reference's ids of `text`, u32; raises `TextError`, `ReferenceFailedError`."""
        encode_utf8(text)
        return self.reference.ids(text, add_special_tokens=add_special_tokens)

    def session(self, text: str = "", *, add_special_tokens: bool = False) -> Session | EngineSession:
        """A session that begins with `text`, encoded in full by the reference."""
        if self._native is not None:
            encode_utf8(text)
            native = self._native.session(text)
            return EngineSession(self, self._native, native, add_special_tokens=add_special_tokens)
        data = encode_utf8(text)
        tokens = self.reference.encode(text)
        return Session(self, data, tokens, add_special_tokens=add_special_tokens)

    def with_specials(self, tokens: Encoded, *, add_special_tokens: bool) -> TokenBuffer:
        """The tokens of a text with the special ones around them when they are asked for."""
        if not add_special_tokens:
            return TokenBuffer(tokens, (), ())
        return TokenBuffer(tokens, self.specials.prefix, self.specials.suffix)


def load(source: str | Path | bytes, *, name: str = "") -> Tokenizer:
    """Load a Hugging Face tokenizer.json, by path or by content; raises `TokenizerError`.

    >>> tokenizer = load("tokenizer.json")                                          # doctest: +SKIP
    >>> session = tokenizer.session("Hello")                                        # doctest: +SKIP
    >>> session.append(", world").ids                                               # doctest: +SKIP
    """
    if isinstance(source, bytes):
        return Tokenizer(source, name=name)
    try:
        data = Path(source).read_bytes()
    except OSError as error:
        raise TokenizerError(f"cannot read {source}: {error.strerror}") from error
    return Tokenizer(data, name=name or Path(source).stem)
