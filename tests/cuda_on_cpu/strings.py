"""Texts that are meant to break the kernels: seeded, and the same on every machine.

Half of them are the project's adversarial texts; the others are aimed at what the kernels do by length, by neighbours
in a piece, or by characters that the pre-tokenizer tells apart.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from toksplice import alphabets
from toksplice.adversarial import Adversary, Stock

#: Longest adversarial text in characters; short texts find more in the same time.
TEXT_CHARS_MAX = 600
#: Lengths of pieces at which another kernel takes over, or a warp or a tile ends.
EDGES = (1, 2, 8, 9, 15, 16, 17, 31, 32, 33, 34, 63, 64, 65, 127, 128, 129, 130, 255, 256, 257)

_ONE_LETTER = ("a", "x", "A", "é", "ß", "中", "한", "😀", "-", "=", ".", "!", "0", "٣", " ", "\n", "\t", "\u0301", "/")
_SPELLED = ("ab", "aB", "the", "ing", "er", "on", "'s", "'LL", "->", "==", "()", "12", "中文", "é!", "\r\n", " a", "a ")


class Strings:
    """`tokens`: the spellings of a vocabulary's tokens, to be put side by side; `added`: its added tokens."""

    def __init__(self, seed: int, tokens: Sequence[str], added: Sequence[str]) -> None:
        self._rng = random.Random(f"strings/{seed}")
        self._tokens = tokens
        stock = Stock(seed, added)
        self._adversary = Adversary(seed, stock)
        self._makers = (self._run, self._repeated, self._joined_tokens, self._mixed, self._edge)

    def __iter__(self) -> Iterator[str]:
        while True:
            size = round(TEXT_CHARS_MAX ** self._rng.random())
            yield self._adversary.text(size)
            yield self._rng.choice(self._makers)()

    def _length(self) -> int:
        return max(1, self._rng.choice(EDGES) + self._rng.choice((-1, 0, 0, 0, 1)))

    def _run(self) -> str:
        """One character so often that the piece has the length of an edge, in bytes or in characters."""
        letter = self._rng.choice(_ONE_LETTER)
        return letter * max(1, self._length() // self._rng.choice((1, len(letter.encode()))))

    def _repeated(self) -> str:
        """Pairs that merge side by side, cut at an edge."""
        length = self._length()
        return (self._rng.choice(_SPELLED) * length)[:length]

    def _joined_tokens(self) -> str:
        """Tokens that mostly merge with their neighbours, without anything between them."""
        words = self._rng.choices(self._tokens, k=self._rng.choice((2, 3, 4, 6, 12)))
        if self._rng.random() < 0.3:
            words = words[:2] * self._rng.randrange(1, 9)
        return "".join(words)

    def _mixed(self) -> str:
        """Single characters of a few kinds, in runs."""
        few = self._rng.sample(_ONE_LETTER, k=self._rng.randrange(2, 6))
        return "".join(
            self._rng.choice(few) * self._rng.choice((1, 1, 1, 2, 3, 5)) for _ in range(self._rng.randrange(1, 15))
        )

    def _edge(self) -> str:
        """A word of random letters with the length of an edge, between two others."""
        letters = "".join(self._rng.choices("etaoinshrdlu", k=self._length()))
        return self._rng.choice(alphabets.WORDS) + " " + letters + self._rng.choice((" ", "\n", "'s", ".", "é"))
