"""Edits that are meant to break splicing: half of them random, half attacks on a named rule; all of them seeded.

`Adversary` makes texts and edits of texts; it knows nothing of tokenizers but the added tokens it is given.
`toksplice verify` and the property tests run every edit through a session and compare.

    stock = Stock(seed=1, added_tokens=("<|im_start|>",))
    adversary = Adversary("chain 1", stock)
    text = adversary.text(adversary.context_size())
    for edit in adversary.edits(text, count=20):
        session.splice(edit.start, edit.end, edit.insert)

Positions of an edit are UTF-8 bytes of the text before it, as a session takes them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from toksplice import alphabets
from toksplice.attacks import ATTACKS, log_uniform

Maker = Callable[[], str]

MAX_EDIT_CHARS = 2_000
"""Longest text that one edit brings in, in characters."""
MAX_CONTEXT_CHARS = 20_000
"""Longest context; one edit may lead beyond it, the next one leads back."""
MAX_ADDED_TOKENS = 64
"""Added tokens that are drawn from, at most: a vocabulary may have hundreds that are all alike."""
RANDOM = "random"
"""The rule of an edit that attacks none in particular."""

TAPE_CHARS = 16_384
"""Length of a tape of the stock, in characters."""
SMALL_CONTEXTS = 0.1
"""Share of the chains that begin with a text of at most three characters."""
ROOM_CHARS = 400
"""However short its first text, a chain's text may grow to this length."""

EditKind = Literal["append", "insert", "splice", "delete", "truncate", "update", "undo", "fork"]

_KINDS: tuple[EditKind, ...] = (
    *("append",) * 4, *("insert", "splice", "delete", "undo") * 2, "truncate", "update", "fork",
)  # fmt: skip
_CARRIERS: tuple[EditKind | None, ...] = (*(None,) * 8, "update", "fork")
"""How the forms of an attack are set: by the operation that fits mostly, else by one that takes any edit."""
_POOLS: tuple[Sequence[str], ...] = (
    alphabets.WORDS, alphabets.PUNCTUATION, alphabets.EMOJI, alphabets.CJK, alphabets.WIDE, alphabets.RARE,
    alphabets.CONTROLS, alphabets.HANGUL, alphabets.MARKS, alphabets.SPACES, alphabets.CONTRACTIONS,
)  # fmt: skip
# Added tokens in their absence: what looks like one is text then, which is an attack as well.
_STAND_INS = ("<|im_start|>", "<think>", "</s>", "[MASK]", "\n\n")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace bytes [start, end) of the text before by `insert`; `after` is the whole text afterwards.

    `kind` names the session operation that should carry it: "append" has start = end = the text's length,
    "insert" has start = end, "delete" brings in nothing, "truncate" neither, with end = the length; "update" passes
    `after` as a whole, "undo" takes a turn back, by a truncation where that is enough and by an update otherwise,
    and "fork" is a splice of a copy. `rule` names the rule that it attacks, or is "random".
    """

    kind: EditKind
    start: int
    end: int
    insert: str
    after: str
    rule: str


class Stock:
    """Long tapes of text, one for each kind of characters; texts are cut from them and mixed.

    The same seed and tokens give the same tapes, on every machine. One stock serves many adversaries.
    """

    def __init__(self, seed: int | str, added_tokens: Sequence[str] = ()) -> None:
        self._rng = random.Random(f"stock/{seed}")
        tokens = sorted({token for token in added_tokens if token})
        if len(tokens) > MAX_ADDED_TOKENS:
            tokens = sorted(random.Random(0).sample(tokens, MAX_ADDED_TOKENS))
        self.added_tokens: tuple[str, ...] = tuple(tokens) or _STAND_INS
        makers = (
            self._prose, self._code, self._digits, self._spaces, self._contractions, self._marked, self._mixture,
            self._scripts, self._run_of_one, self._added_token,
        )  # fmt: skip
        self.tapes = tuple(self._tape(maker) for maker in makers)

    def _tape(self, maker: Maker) -> str:
        parts: list[str] = []
        size = 0
        while size < TAPE_CHARS:
            parts.append(maker())
            size += len(parts[-1])
        return "".join(parts)[:TAPE_CHARS]

    def _prose(self) -> str:
        words = self._rng.choices(alphabets.WORDS, k=self._rng.randrange(1, 12))
        return " ".join(words) + self._rng.choice(("", ".", ", ", "?\n", " ", "!\r\n"))

    def _code(self) -> str:
        indent = self._rng.choice((" ", "\t")) * self._rng.randrange(9)
        name = self._rng.choice(alphabets.WORDS)
        body = self._rng.choice(alphabets.PUNCTUATION) + self._rng.choice(alphabets.WORDS)
        return f"\n{indent}{name}({body}, {self._rng.randrange(10_000)}){self._rng.choice((':', ';', ''))}\n"

    def _digits(self) -> str:
        size = self._rng.choice((1, 2, 3, 4, 7, self._rng.randrange(1, 60)))
        run = "".join(self._rng.choices(self._rng.choice(alphabets.DIGITS), k=size))
        return run + self._rng.choice((" ", ".", "", "x", "\n"))

    def _spaces(self) -> str:
        if self._rng.random() < 0.5:
            return self._rng.choice(alphabets.SPACES) * self._rng.choice((1, 2, 3, 4, 8, 31))
        return "".join(self._rng.choices(alphabets.SPACES, k=self._rng.randrange(1, 8))) + self._rng.choice("aé1-")

    def _contractions(self) -> str:
        words = self._rng.choices(alphabets.CONTRACTIONS, k=self._rng.randrange(1, 4))
        return self._rng.choice(("", "it", "WE", "o", " ")) + "".join(words)

    def _marked(self) -> str:
        base = self._rng.choice((*alphabets.WORDS, *alphabets.HANGUL, *alphabets.CJK, "e", "a", " ", "="))
        return base + "".join(self._rng.choices((*alphabets.MARKS, *alphabets.HANGUL), k=self._rng.randrange(1, 5)))

    def _scripts(self) -> str:
        words = alphabets.SCRIPTS[self._rng.choice(tuple(alphabets.SCRIPTS))]
        return " ".join(self._rng.choices(words, k=self._rng.randrange(1, 6))) + self._rng.choice(("", " ", "\n", "1"))

    def _mixture(self) -> str:
        return "".join(self._rng.choice(self._rng.choice(_POOLS)) for _ in range(self._rng.randrange(1, 10)))

    def _run_of_one(self) -> str:
        letter = self._rng.choice(("a", "^", "=", "-", "\n", "0", "é", "字", "'", "😀", "\u0301", "."))
        return letter * self._rng.choice((2, 5, 17, self._rng.randrange(1, 300)))

    def _added_token(self) -> str:
        """An added token: whole, its beginning, its end, in capitals, doubled, or among white space."""
        token = self._rng.choice(self.added_tokens)
        cut = self._rng.randrange(len(token) + 1)
        variants = (token, token, token[:cut], token[cut:], token.upper(), token * 2, f" {token} ", f"x{token}\n")
        return self._rng.choice(variants)


class Adversary:
    """A seeded source of texts and chains of edits. The same seed and stock give the same ones, on every machine."""

    def __init__(self, seed: int | str, stock: Stock) -> None:
        self._rng = random.Random(f"adversary/{seed}")
        self._stock = stock
        self._turn: str | None = None  # the text before the turn that an undo takes back

    def text(self, size_chars: int) -> str:
        """A text of exactly this many characters, in slices of a few tapes each."""
        rng = self._rng
        parts: list[str] = []
        size = 0
        tapes = rng.choices(self._stock.tapes, k=4)
        while size < size_chars:
            length = min(size_chars - size, log_uniform(rng, 300))
            at = rng.randrange(TAPE_CHARS - length)
            parts.append(rng.choice(tapes)[at : at + length])
            size += length
        return "".join(parts)

    def context_size(self) -> int:
        """How long a text to start from, in characters: each order of magnitude up to 20,000 is as likely as the
        next, and one text in ten has none to three."""
        if self._rng.random() < SMALL_CONTEXTS:
            return self._rng.randrange(4)
        return log_uniform(self._rng, MAX_CONTEXT_CHARS)

    def edits(self, text: str, count: int) -> Iterator[Edit]:
        """A chain of `count` edits, each applied to the result of the one before it."""
        limit = min(max(2 * len(text), ROOM_CHARS), MAX_CONTEXT_CHARS)
        self._turn = None
        balance = 0  # random edits so far, less attacking ones
        while count > 0:
            attack = balance > 0 and len(text) <= limit
            for edit in self._attack(text) if attack else (self._random_edit(text, limit),):
                if count > 0:
                    yield edit
                    text = edit.after
                    balance += -1 if attack else 1
                    count -= 1

    # Random edits

    def _random_edit(self, text: str, limit: int) -> Edit:
        if len(text) > limit:
            return self._shrunk(text, limit)
        kind = self._rng.choice(_KINDS)
        if kind == "undo":
            if self._turn is not None and self._turn != text:
                return self._undo(text)
            kind = "append"
        if kind in ("delete", "truncate") and not text:
            kind = "append"
        if kind == "append":
            if self._turn is None or self._rng.random() < 0.5:
                self._turn = text
            return _edit(kind, text, len(text), len(text), self._insert(text, len(text)))
        if kind == "update" and self._rng.random() < 0.2:
            # A whole new text whose end recurs: the worst case for looking for what is common.
            return _edit(kind, text, 0, self._place(len(text)), self.text(self._rng.randrange(1, 200)))
        return self._anywhere(kind, text)

    def _anywhere(self, kind: EditKind, text: str) -> Edit:
        """An edit somewhere in `text`, mostly near its end."""
        start = self._place(len(text))
        if kind in ("delete", "truncate"):
            start = min(start, len(text) - 1)
        end = start
        if kind == "truncate":
            end = len(text)
        elif kind != "insert":
            least = 1 if kind == "delete" else 0
            end = min(len(text), start + max(least, log_uniform(self._rng, MAX_EDIT_CHARS) - 1))
        insert = "" if kind in ("delete", "truncate") else self._insert(text, start)
        return _edit(kind, text, start, end, insert)

    def _shrunk(self, text: str, limit: int) -> Edit:
        """Back to at most half the limit, from one end or the other."""
        size = self._rng.randint(limit // 4, limit // 2)
        if self._rng.random() < 0.5:
            return _edit("truncate", text, size, len(text), "")
        return _edit("delete", text, 0, len(text) - size, "")

    def _undo(self, text: str) -> Edit:
        before = self._turn or ""
        self._turn = None
        if text.startswith(before):
            return _edit("undo", text, len(before), len(text), "")
        return _edit("undo", text, 0, len(text), before)

    def _place(self, size: int) -> int:
        """A place from 0 to `size`: half of them as far from the end as edits of that order are long."""
        if self._rng.random() < 0.5:
            return max(0, size + 1 - log_uniform(self._rng, MAX_EDIT_CHARS))
        return self._rng.randint(0, size)

    def _insert(self, text: str, at: int) -> str:
        """What an edit brings in: of any length, and often the rest of what was begun there."""
        rng = self._rng
        choice = rng.random()
        if choice < 0.1:
            return self._completion(text[max(0, at - 32) : at])
        if choice < 0.2 and at:
            return text[at - 1] * log_uniform(rng, 200)
        return self.text(log_uniform(rng, MAX_EDIT_CHARS))

    def _completion(self, before: str) -> str:
        """What turns the end of `before` into an added token, when it ends with the start of one."""
        tokens = self._stock.added_tokens
        for candidate in self._rng.sample(tokens, min(8, len(tokens))):
            for size in range(min(len(candidate) - 1, len(before)), 0, -1):
                if before.endswith(candidate[:size]):
                    return candidate[size:]
        return self._rng.choice(tokens)

    # Attacks

    def _attack(self, text: str) -> Iterator[Edit]:
        """The edits that put a fragment somewhere and lead it through its forms, at most `MAX_EDIT_CHARS` long."""
        rng = self._rng
        rule = rng.choice(tuple(ATTACKS))
        forms = [form[:MAX_EDIT_CHARS] for form in rng.choice(ATTACKS[rule])(rng, self._stock.added_tokens)]
        start = end = self._attacked_place(len(text))
        old = ""
        for number, new in enumerate(forms):
            if new == old:
                continue
            left = _common(old, new)
            right = _common(old[left:][::-1], new[left:][::-1])
            edit = _edit(self._carrier(number), text, start + left, end - right, new[left : len(new) - right], rule)
            yield edit
            text, old, end = edit.after, new, start + len(new)

    def _attacked_place(self, size: int) -> int:
        choice = self._rng.random()
        if choice < 0.45:
            return size
        return 0 if choice < 0.55 else self._place(size)

    def _carrier(self, number: int) -> EditKind | None:
        return self._rng.choice(_CARRIERS) if number else None


def _edit(kind: EditKind | None, text: str, start: int, end: int, insert: str, rule: str = RANDOM) -> Edit:
    """The edit of `text` that puts `insert` in place of characters [start, end); None: the operation that fits."""
    first = len(text[:start].encode())
    last = first + len(text[start:end].encode())
    fits = kind or _fitting(start, end, len(text), insert)
    return Edit(fits, first, last, insert, text[:start] + insert + text[end:], rule)


def _fitting(start: int, end: int, size: int, insert: str) -> EditKind:
    if not insert:
        return "truncate" if end == size else "delete"
    if start == end:
        return "append" if end == size else "insert"
    return "splice"


def _common(one: str, other: str) -> int:
    """Characters that two texts share at the start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
