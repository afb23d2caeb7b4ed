"""A tokenizer: the reference, its identity, and what is known about cutting its texts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toksplice import snapshot
from toksplice.buffers import TokenBuffer
from toksplice.engine import NativeRoute, build
from toksplice.engine_session import EngineSession
from toksplice.errors import SnapshotError, TokenizerError
from toksplice.fingerprint import fingerprint_of, parse
from toksplice.pattern import UnsupportedPatternError
from toksplice.plan import Explanation, Route, explain, explain_native, longest_token_chars, plan
from toksplice.reference import U32, Encoded, Reference, Specials, encode_utf8
from toksplice.reference_session import ReferenceSession
from toksplice.session import Session
from toksplice.structure import NotUnderstoodError


class Tokenizer:
    """An exact tokenizer over one tokenizer.json. Thread-safe; sessions of it are independent.

    Without `engine` the native engine is left out, and routes C and D serve every tokenizer: an oracle for the engine.
    """

    def __init__(self, data: bytes, *, name: str = "", engine: bool = True) -> None:
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

    @property
    def whole_text_route(self) -> str:
        """The route by which whole texts are encoded: the engine's, "A" or "B", else "D"."""
        return self._native.letter if self._native is not None else "D"

    @functools.cached_property
    def _plan(self) -> tuple[Route | None, str]:
        return plan(self._config, self._longest_token_chars)

    @property
    def route(self) -> Route | None:
        """What route C needs, or None when there is none. Found out when it is first asked for, which can take
        seconds: no tokenizer that the engine serves ever asks."""
        return self._plan[0]

    def explain(self) -> Explanation:
        """Which routes serve this tokenizer, and why. Without the engine it can take seconds the first time."""
        if self._native is not None:
            return explain_native(self._config, self._native.letter, self._longest_token_chars)
        route, reason = self._plan
        return explain(self._config, route, f"{reason} (no engine: {self._without_native})", self._longest_token_chars)

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

    def session(
        self, text: str = "", *, add_special_tokens: bool = False, engine: bool = True, like: Session | None = None
    ) -> Session:
        """A session that begins with `text`, which is encoded in full; without `engine` by the reference.

        like: a session of this tokenizer, left as it is. Where both are the engine's, they share the memory of what
        `text` and its text have in common at the beginning, and that is not encoded again.
        """
        if not engine or self._native is None:
            data = encode_utf8(text)
            return ReferenceSession(self, data, self.reference.encode(text), add_special_tokens=add_special_tokens)
        if isinstance(like, EngineSession) and like.serves(self._native):
            session = like.fork(add_special_tokens=add_special_tokens)
            session.update(text)
            return session
        return EngineSession(self, self._native, self._native.session(text), add_special_tokens=add_special_tokens)

    def state_of(self, text: bytes, ids: U32, *, add_special_tokens: bool = False) -> bytes:
        """A snapshot of the session that begins with `text`, UTF-8, whose core `ids` somebody else made. Whoever
        restores it encodes the text and compares."""
        return snapshot.dump_text(self.fingerprint, add_special_tokens, text, ids)

    def spans(self, text: bytes, ids: U32, starts: U32) -> U32:
        """The reference's byte spans, u32 of shape (tokens, 2), of tokens that somebody else made and that tile `text`,
        UTF-8: core `ids` and their first bytes, u32 each. Raises `TokenizerError` when no engine serves this tokenizer,
        ValueError when the tokens do not tile the text."""
        if self._native is None:
            raise TokenizerError(f"spans take the native engine: {self._without_native}")
        return self._native.native.spans(text, ids, starts)

    def restore(self, data: bytes, *, like: Callable[[bytes], Session | None] | None = None) -> Session:
        """The session of a snapshot; raises `SnapshotError` when it is damaged or of another tokenizer.

        It is the engine's when that gives the tokens of the snapshot; else the reference's, if the tokens are there.
        like: gives for the text of the snapshot, in UTF-8, a session to share a beginning with, as for `session`.
        """
        state = snapshot.parse(data)
        if state.fingerprint != self.fingerprint:
            raise SnapshotError("the session bytes belong to another tokenizer")
        if self._native is not None or state.tokens is None:
            shared = like(state.text) if like is not None else None
            text = state.text.decode()
            session = self.session(text, add_special_tokens=state.add_special_tokens, like=shared)
            specials = self.specials_around(add_special_tokens=state.add_special_tokens)
            core = session.ids_between(len(specials.prefix), session.total - len(specials.suffix))
            if snapshot.digest_of_ids(core) == state.ids_digest:
                return session
        if state.tokens is None:
            raise SnapshotError("the session bytes hold other tokens than their text has")
        return ReferenceSession(self, state.text, state.tokens, add_special_tokens=state.add_special_tokens)

    def specials_around(self, *, add_special_tokens: bool) -> Specials:
        """The special tokens around a text, none unless they are asked for."""
        return self.specials if add_special_tokens else Specials()

    def with_specials(self, tokens: Encoded, *, add_special_tokens: bool) -> TokenBuffer:
        """The tokens of a text with the special ones around them when they are asked for."""
        specials = self.specials_around(add_special_tokens=add_special_tokens)
        return TokenBuffer(tokens, specials.prefix, specials.suffix)


def load(source: str | Path | bytes, *, name: str = "", engine: bool = True) -> Tokenizer:
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
