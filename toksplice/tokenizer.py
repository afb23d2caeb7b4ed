"""A tokenizer: the reference, its identity, and what is known about cutting its texts."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toksplice import snapshot
from toksplice.buffers import TokenBuffer
from toksplice.engine import NativeRoute, build
from toksplice.engine_session import EngineSession
from toksplice.errors import SnapshotError, TokenizerError
from toksplice.fingerprint import fingerprint_of, parse
from toksplice.pattern import UnsupportedPatternError
from toksplice.plan import Explanation, Route, explain, longest_token_chars, plan
from toksplice.reference import U32, Encoded, Reference, Specials, encode_utf8
from toksplice.reference_session import ReferenceSession
from toksplice.session import Session
from toksplice.structure import NotUnderstoodError


class Tokenizer:
    """An exact tokenizer over one tokenizer.json. Thread-safe; sessions of it are independent."""

    def __init__(self, data: bytes, *, name: str = "", engine: bool = False) -> None:
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
        self._without_native = "it is switched off"
        if engine:
            try:
                self._native = build(data, config, self.reference)
            except (NotUnderstoodError, UnsupportedPatternError) as error:
                self._without_native = str(error)

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
    def _plan(self) -> tuple[Route | None, str]:
        return plan(self._config, self._longest_token_chars)

    @property
    def route(self) -> Route | None:
        """What route C needs, or None when only the engine and the reference serve this tokenizer."""
        return self._plan[0]

    def explain(self) -> Explanation:
        """Which routes serve this tokenizer, and why."""
        route, reason = self._plan
        return explain(
            self._config,
            route,
            reason,
            native=self._native.letter if self._native else None,
            without_native=self._without_native,
            longest_token_chars=self._longest_token_chars,
        )

    @functools.cached_property
    def specials(self) -> Specials:
        """The ids put around a text by `add_special_tokens`; raises `TokenizerError` when they depend on it."""
        found = self.reference.specials()
        if found is None:
            raise TokenizerError("the post-processor does more than put ids around a text")
        return found

    def encode(self, text: str, *, add_special_tokens: bool = False) -> U32:
        """The reference's ids of `text`, u32; raises `TextError`, `ReferenceFailedError`."""
        if self._native is not None:
            return self.specials_around(add_special_tokens=add_special_tokens).around(self._native.encode(text))
        encode_utf8(text)
        return self.reference.ids(text, add_special_tokens=add_special_tokens)

    def session(self, text: str = "", *, add_special_tokens: bool = False) -> Session:
        """A session that begins with `text`, which is encoded in full."""
        if self._native is not None:
            return EngineSession(self, self._native, self._native.session(text), add_special_tokens=add_special_tokens)
        data = encode_utf8(text)
        return ReferenceSession(self, data, self.reference.encode(text), add_special_tokens=add_special_tokens)

    def restore(self, data: bytes) -> Session:
        """The session of a snapshot; raises `SnapshotError` when it is damaged or of another tokenizer."""
        state = snapshot.parse(data)
        if state.fingerprint != self.fingerprint:
            raise SnapshotError("the session bytes belong to another tokenizer")
        if self._native is None and state.tokens is not None:
            return ReferenceSession(self, state.text, state.tokens, add_special_tokens=state.add_special_tokens)
        session = self.session(state.text.decode(), add_special_tokens=state.add_special_tokens)
        specials = self.specials_around(add_special_tokens=state.add_special_tokens)
        core = session.ids[len(specials.prefix) : session.total - len(specials.suffix)]
        if snapshot.digest_of_ids(core) != state.ids_digest:
            raise SnapshotError("the session bytes hold other tokens than their text has")
        return session

    def specials_around(self, *, add_special_tokens: bool) -> Specials:
        """The special tokens around a text, none unless they are asked for."""
        return self.specials if add_special_tokens else Specials()

    def with_specials(self, tokens: Encoded, *, add_special_tokens: bool) -> TokenBuffer:
        """The tokens of a text with the special ones around them when they are asked for."""
        specials = self.specials_around(add_special_tokens=add_special_tokens)
        return TokenBuffer(tokens, specials.prefix, specials.suffix)


def load(source: str | Path | bytes, *, name: str = "", engine: bool = False) -> Tokenizer:
    """Load a Hugging Face tokenizer.json, by path or by content; raises `TokenizerError`.

    Without `engine` the native engine is left out: routes C and D serve every edit.

    >>> tokenizer = load("tokenizer.json")                                          # doctest: +SKIP
    >>> session = tokenizer.session("Hello")                                        # doctest: +SKIP
    >>> session.append(", world").ids                                               # doctest: +SKIP
    """
    if isinstance(source, bytes):
        return Tokenizer(source, name=name, engine=engine)
    try:
        data = Path(source).read_bytes()
    except OSError as error:
        raise TokenizerError(f"cannot read {source}: {error.strerror}") from error
    return Tokenizer(data, name=name or Path(source).stem, engine=engine)
