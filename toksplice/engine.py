"""The native engine for a tokenizer, made when every part of its tokenizer.json is understood and checks out."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from toksplice import _native
from toksplice.charclass import PROBED, normal_form
from toksplice.program import Program, program
from toksplice.reference import U32, Reference, encode_utf8
from toksplice.structure import NotUnderstoodError

#: Pieces of more than one token whose ids each thread at work remembers.
CACHE_ENTRIES = 1 << 14

#: Texts that engine and reference must agree on before the engine is used: a guard against a broken build, no proof.
_SELF_TEST = (
    "",
    " ",
    "Hello, world!  It's 12345 o'clock\r\n\r\n\t\tdef f(x):\n    return x_1  ",
    "e\u0301 \u1e0b\u0323 \uac00\u11a8 \ufb01 ½ \u2126 ﷺ",
    "漢字かな交じり文 ไทย हिन्दी العربية 🤷🏽‍♀️\U00020000\u2581\u2581x \u2581",
    "\x00\x01\x7f\u0085\u00a0\u3000\ufeff'S'ſ'LL  \n \u200d~~~###====>>>",
)


@dataclass(frozen=True, slots=True)
class NativeRoute:
    """Routes A and B: `letter` says which."""

    native: _native.Engine
    letter: str

    def encode(self, text: str) -> U32:
        """The ids of `text`, u32, without special tokens; raises `TextError`."""
        try:
            return self.native.encode(text)
        except (UnicodeEncodeError, TypeError):
            encode_utf8(text)  # names the fault
            raise

    def session(self, text: str) -> _native.Session:
        """A native session that begins with `text`; raises `TextError`."""
        try:
            return _native.Session(self.native, text)
        except (UnicodeEncodeError, TypeError):
            encode_utf8(text)  # names the fault
            raise


def build(data: bytes, config: Mapping[str, Any], reference: Reference) -> NativeRoute:
    """The engine for a tokenizer.json; raises `NotUnderstoodError` with the reason when there can be none."""
    facts = program(config)
    engine = _engine(data, facts)
    if facts.normal_form is not None and not _same_normal_form(facts.normal_form):
        raise NotUnderstoodError(f"the engine's tables of {facts.normal_form} are not those of the reference")
    for text in _SELF_TEST:
        if not np.array_equal(engine.encode(text), reference.ids(text)):
            raise NotUnderstoodError("the engine and the reference disagree on a self-test")
    return NativeRoute(engine, "A" if facts.kind == "bytes" else "B")


def _engine(data: bytes, facts: Program) -> _native.Engine:
    levels = [(level.classes, level.n_classes + 1, level.transitions, level.keeps_gaps) for level in facts.levels]
    prepend = "always_if_absent" if facts.prepend == "always" and facts.first_if_absent else facts.prepend
    try:
        return _native.Engine(
            data,
            levels=levels if facts.kind == "bytes" else None,
            normal_form=facts.normal_form,
            added=[(token.content, token.id, token.normalized, token.lstrip, token.rstrip) for token in facts.added],
            trim_offsets=facts.trim_offsets,
            mark_spaces=facts.mark_spaces,
            prepend=prepend,
            cache_entries=CACHE_ENTRIES,
        )
    except ValueError as error:
        raise NotUnderstoodError(str(error)) from error


@functools.cache
def _same_normal_form(form: str) -> bool:
    """Whether engine and reference agree on every character that was probed, each between two letters."""
    text = "a".join(chr(point) for point in range(PROBED) if not 0xD800 <= point < 0xE000)
    return _native.normalize(text, form) == normal_form(form).normalize_str(text)
