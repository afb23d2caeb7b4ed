"""A byte-level BPE model as tables: which pieces are one token, and what two neighbouring tokens merge to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_worker.compiler.hashing import Strings, pairs, strings
from gpu_worker.encoder import UnsupportedError
from toksplice.convert.document import byte_letters

#: Widths of the keys of the pair table: two ids and a rank in 64 bits, of which one value stands for a free slot.
ID_BITS = 18
RANK_BITS = 20
MAX_IDS = (1 << ID_BITS) - 1
MAX_RANKS = (1 << RANK_BITS) - 1
#: Set in what a rank makes: every occurrence of the pair may be merged at once.
AT_ONCE = 1 << 31

_NEVER_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
_NO_TOKEN = 0xFFFF_FFFF

_Merges = dict[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`whole`: the pieces that are one token. `pair_ranks`: u64, `left << 38 | right << 20 | rank` in a slot.
    `products`: u32 by rank, the token that it makes and `AT_ONCE`. `byte_ids`: u32 of shape (256,)."""

    whole: Strings
    pair_ranks: npt.NDArray[np.uint64]
    products: npt.NDArray[np.uint32]
    byte_ids: npt.NDArray[np.uint32]


def build(model: Mapping[str, Any], piece_ids: Callable[[str], list[int]]) -> Vocabulary:
    """The tables of a tokenizer.json's model. `piece_ids`: the reference's ids of a piece. Raises
    `UnsupportedError`."""
    ids: Mapping[str, int] = model["vocab"]
    if max(ids.values(), default=0) >= MAX_IDS or len(model["merges"]) >= MAX_RANKS:
        raise UnsupportedError(f"ids from {MAX_IDS} on, or {MAX_RANKS} merges or more")
    by_byte = byte_letters()
    letters = [by_byte[byte] for byte in range(0x100)]
    found = _byte_ids(ids, letters)
    merges = _merges(model["merges"], ids)
    keys = np.array([left << ID_BITS | right for left, right in merges], dtype=np.uint64)
    ranks = np.array([rank for rank, _ in merges.values()], dtype=np.uint64)
    return Vocabulary(
        whole=_whole(ids, letters, piece_ids),
        pair_ranks=pairs(keys, ranks, RANK_BITS),
        products=_products(merges, len(model["merges"])),
        byte_ids=found,
    )


def _byte_ids(ids: Mapping[str, int], letters: Sequence[str]) -> npt.NDArray[np.uint32]:
    found = [ids.get(letter, _NO_TOKEN) for letter in letters]
    missing = [byte for byte, token in enumerate(found) if token == _NO_TOKEN and byte not in _NEVER_IN_UTF8]
    if missing:
        raise UnsupportedError(f"the vocabulary has no token for the byte {missing[0]:#04x}")
    return np.array(found, dtype=np.uint32)


def _whole(ids: Mapping[str, int], letters: Sequence[str], piece_ids: Callable[[str], list[int]]) -> Strings:
    """The tokens that the reference makes of their own text; others it can never make of a whole piece."""
    byte_of = {ord(letter): byte for byte, letter in enumerate(letters)}
    found = {
        spelling.translate(byte_of).encode("latin-1"): token
        for spelling, token in ids.items()
        if spelling and all(ord(letter) in byte_of for letter in spelling) and piece_ids(spelling) == [token]
    }
    return strings(list(found), list(found.values()))


def _merges(listed: Sequence[Any], ids: Mapping[str, int]) -> _Merges:
    """Rank and product of each pair of ids. A pair that is listed twice has its last rank, as with the reference."""
    return {(ids[left], ids[right]): (rank, ids[left + right]) for rank, (left, right) in enumerate(_sides(listed))}


def _sides(listed: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for merge in listed:
        left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
        yield left, right


def _products(merges: _Merges, ranks: int) -> npt.NDArray[np.uint32]:
    """What each rank makes, and whether all its occurrences may be merged at once, leftmost first.

    The reference merges the pair of lowest rank, leftmost first, one at a time. While no merge makes a pair of a lower
    rank, the next one is the next occurrence of the same pair. That is certain if every pair with the product has a
    higher rank. Not in all vocabularies: tens of thousands of Llama 3's merges rank before their parts are made. There,
    one occurrence is merged at a time.
    """
    lowest: dict[int, int] = {}
    for pair, (rank, _) in merges.items():
        for token in pair:
            lowest[token] = min(rank, lowest.get(token, rank))
    products = np.zeros(max(ranks, 1), dtype=np.uint32)
    for rank, product in merges.values():
        products[rank] = product | (AT_ONCE if lowest.get(product, ranks) > rank else 0)
    return products
