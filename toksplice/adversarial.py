"""Edits that are meant to break splicing: random, seeded, and made of what tokenizers trip over.

`Adversary` makes texts and edits of texts; it knows nothing of tokenizers but the added tokens it is given.
`toksplice verify` and the property tests run every edit through a session and compare with the reference.

An edit is what a session takes: positions are UTF-8 bytes of the text before it.

    adversary = Adversary(seed=1, added_tokens=("<|im_start|>",))
    text = adversary.text(4_500)
    for edit in adversary.edits(text, count=20):
        session.splice(edit.start, edit.end, edit.insert)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

MAX_EDIT_CHARS = 2_000
"""Longest text that one edit brings in, in characters; what repeats or completes may be longer by a token."""
MAX_ADDED_TOKENS = 64
"""Added tokens that are drawn from, at most: a vocabulary may have hundreds that are all alike."""

EditKind = Literal["append", "splice", "truncate", "update", "fork"]

# fmt: off
_WORDS = (
    "the", "of", "and", "token", "Tokenizer", "HTTPServer", "snake_case_name", "camelCase", "x", "I", "def",
    "return", "self", "import", "naïve", "Straße", "İstanbul", "ǅungla", "ﬁne", "über", "don", "we", "they",
)
_CONTRACTIONS = (
    "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'LL", "'", "''", "'\u017f", "'Ve", "'lL",
    "’s", "'s's's", "it's", "I'm", "'sa", "'r", "'l", "'v",
)
_DIGITS = (
    "0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "²³¹½¼Ⅷ①〇一", "𝟎𝟏𝟐𝟑",
)
_SPACES = (
    " ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", "\u00a0", "\u1680", "\u2003", "\u2028", "\u2029",
    "\u3000", "\u0085", "\u000b", "\u000c", "\u001c", "\u200b", "\u180e", "\ufeff",
)
_PUNCTUATION = (
    *"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "...", "??", "//", "::", "->", "。", "、", "–", "“", "``",
)
_MARKS = (
    "\u0301", "\u0308", "\u0345", "\u0327", "\u0323", "\u0340", "\u20d0", "\ufe0f", "\u0f71", "\u3099",
    "\u0305",
)
# Hangul as leading consonants, vowels and trailing consonants that compose, as syllables, and as letters.
_JAMO = ("\u1100", "\u1161", "\u11a8", "가", "각", "\u11c2", "\u1175", "힣", "ㄱ", "ㅏ", "\u1112")
# With joiners, skin tones, variation selectors and flags, whole and in halves.
_EMOJI = (
    "😀", "👩\u200d👩\u200d👧", "👍🏽", "🏳\ufe0f\u200d🌈", "\u200d", "🇩🇪", "🇩", "❤\ufe0f", "❤", "\U0001f9ff",
)
_SCRIPTS = (
    "日本語", "中", "文", "漢字仮名", "々", "〆", "ｶﾞ", "が", "か\u3099", "㐀", "𠀀", "ー", "한국어",
    "กำ", "नमस्ते", "العربية", "ؤ", "עברית", "Привет",
)
_WIDE = ("Ａ", "ｂ", "！", "～", "＜｜", "ｉｍ", "▁", "▁▁", "Ġ", "Ċ", "ü ö ù", "ˆ", "￨")
# Private use, controls, unassigned, non-characters, and characters that normalizers change.
_ODD = (
    "\ue000", "\uf8ff", "\U000f0000", "\U0010ffff", "\x00", "\x03", "\x7f", "\x1b", "\x80", "\u00ad",
    "\ufffd", "\ufffe", "\u0378", "\U0002f800", "\u1e9e", "\u017f", "\u212a", "\u2126", "\u212b",
)
_KINDS: tuple[EditKind, ...] = (
    "append", "append", "append", "splice", "splice", "truncate", "update", "fork",
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace bytes [start, end) of the text before by `insert`; `after` is the whole text afterwards.

    `kind` names the session operation that should carry it: "append" has start = end = the text's length,
    "truncate" has end = the length and no insert, "update" passes `after` as a whole, and "fork" is a splice
    of a copy.
    """

    kind: EditKind
    start: int
    end: int
    insert: str
    after: str


class Adversary:
    """A seeded source of texts and edits. The same seed and tokens give the same ones, on every machine."""

    def __init__(self, seed: int | str, added_tokens: Sequence[str] = ()) -> None:
        self._rng = random.Random(f"adversary/{seed}")
        tokens = sorted({token for token in added_tokens if token})
        if len(tokens) > MAX_ADDED_TOKENS:
            tokens = sorted(random.Random(0).sample(tokens, MAX_ADDED_TOKENS))
        self._added = tokens
        self._makers: tuple[Callable[[], str], ...] = (
            self._prose,
            self._prose,
            self._code,
            self._digits,
            self._spaces,
            self._contractions,
            self._marked,
            self._mixture,
            self._mixture,
            self._run_of_one,
            *((self._added_token, self._added_token) if tokens else ()),
        )

    def text(self, size_chars: int) -> str:
        """A text of exactly this many characters."""
        parts: list[str] = []
        size = 0
        while size < size_chars:
            part = self._rng.choice(self._makers)()
            parts.append(part)
            size += len(part)
        return "".join(parts)[:size_chars]

    def context_size(self) -> int:
        """How long a text to start from: none, a few characters, or a long one (over 4,000 half the time)."""
        choice = self._rng.random()
        if choice < 0.1:
            return self._rng.randrange(4)
        if choice < 0.5:
            return self._rng.randrange(1, 1_500)
        return self._rng.randrange(4_001, 9_000)

    def edits(self, text: str, count: int) -> Iterator[Edit]:
        """A chain of edits, each applied to the result of the one before it."""
        for _ in range(count):
            edit = self.edit(text)
            yield edit
            text = edit.after

    def edit(self, text: str) -> Edit:
        """One edit of `text`."""
        rng = self._rng
        kind = rng.choice(_KINDS)
        start, end = len(text), len(text)
        insert = ""
        if kind == "truncate":
            start = self._near_end(len(text))
        elif kind != "append":
            start, end = self._range(len(text))
        if kind != "truncate":
            insert = self._insert(text, start)
        after = text[:start] + insert + text[end:]
        if kind == "update" and rng.random() < 0.2:
            # A whole new text whose end recurs: the worst case for looking for what is common.
            after = self.text(rng.randrange(200)) + text[start:]
        first = len(text[:start].encode())
        return Edit(kind, first, first + len(text[start:end].encode()), insert, after)

    def _range(self, size: int) -> tuple[int, int]:
        start = self._near_end(size) if self._rng.random() < 0.5 else self._rng.randint(0, size)
        span = self._rng.choice((0, 0, 1, 2, self._rng.randrange(20), self._rng.randrange(MAX_EDIT_CHARS)))
        return start, min(size, start + span)

    def _near_end(self, size: int) -> int:
        back = self._rng.choice(
            (0, 1, 2, self._rng.randrange(12), self._rng.randrange(100), self._rng.randrange(2_000))
        )
        return max(0, size - back)

    def _insert(self, text: str, at: int) -> str:
        """What an edit brings in: short texts mostly, and often the rest of what was begun there."""
        rng = self._rng
        choice = rng.random()
        if choice < 0.15 and self._added:
            return self._completion(text[max(0, at - 32) : at])
        if choice < 0.25 and at:
            return text[at - 1] * rng.choice((1, 1, 2, 3, rng.randrange(1, 200)))
        if choice < 0.4:
            return self.text(rng.randrange(4))
        if choice < 0.9:
            return self.text(rng.randrange(120))
        return self.text(rng.randrange(MAX_EDIT_CHARS + 1))

    def _completion(self, before: str) -> str:
        """What turns the end of `before` into an added token, when it ends with the start of one."""
        token = self._rng.choice(self._added)
        for candidate in (token, *self._rng.sample(self._added, min(8, len(self._added)))):
            for size in range(min(len(candidate) - 1, len(before)), 0, -1):
                if before.endswith(candidate[:size]):
                    return candidate[size:]
        return token

    def _prose(self) -> str:
        words = self._rng.choices(_WORDS, k=self._rng.randrange(1, 12))
        return " ".join(words) + self._rng.choice(("", ".", ", ", "?\n", " ", "!\r\n"))

    def _code(self) -> str:
        indent = self._rng.choice((" ", "\t")) * self._rng.randrange(9)
        name = self._rng.choice(_WORDS)
        body = self._rng.choice(_PUNCTUATION) + self._rng.choice(_WORDS)
        return f"\n{indent}{name}({body}, {self._rng.randrange(10_000)}){self._rng.choice((':', ';', ''))}\n"

    def _digits(self) -> str:
        alphabet = self._rng.choice(_DIGITS)
        size = self._rng.choice((1, 2, 3, 4, 7, self._rng.randrange(1, 60)))
        return "".join(self._rng.choices(alphabet, k=size))

    def _spaces(self) -> str:
        if self._rng.random() < 0.5:
            return self._rng.choice(_SPACES) * self._rng.choice((1, 2, 3, 4, 8, 31, self._rng.randrange(1, 90)))
        return "".join(self._rng.choices(_SPACES, k=self._rng.randrange(1, 8)))

    def _contractions(self) -> str:
        return self._rng.choice(("", "it", "WE", "o")) + "".join(
            self._rng.choices(_CONTRACTIONS, k=self._rng.randrange(1, 4))
        )

    def _marked(self) -> str:
        base = self._rng.choice((*_WORDS, *_JAMO, *_SCRIPTS, "e", "a", " ", "="))
        return base + "".join(self._rng.choices((*_MARKS, *_JAMO), k=self._rng.randrange(1, 5)))

    def _mixture(self) -> str:
        pools = (_WORDS, _PUNCTUATION, _EMOJI, _SCRIPTS, _WIDE, _ODD, _JAMO, _MARKS, _SPACES, _CONTRACTIONS)
        return "".join(self._rng.choice(self._rng.choice(pools)) for _ in range(self._rng.randrange(1, 10)))

    def _run_of_one(self) -> str:
        letter = self._rng.choice(("a", "^", "=", "-", "\n", "0", "é", "字", "'", "😀", "\u0301", "."))
        return letter * self._rng.choice((2, 5, 17, self._rng.randrange(1, 300)))

    def _added_token(self) -> str:
        """An added token: whole, its beginning, its end, in capitals, doubled, or among white space."""
        token = self._rng.choice(self._added)
        cut = self._rng.randrange(len(token) + 1)
        variants = (
            token,
            token,
            token[:cut],
            token[cut:],
            token.upper(),
            token + token,
            f" {token} ",
            f"x{token}\n",
        )
        return self._rng.choice(variants)
