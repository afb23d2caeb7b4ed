"""Added tokens as tables: where in a text the kernels look for one, and what they find there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpu_worker.compiler.hashing import Strings, strings
from gpu_worker.encoder import UnsupportedError
from toksplice.program import AddedToken

#: Set in the value of a token: it is matched in the second search, after normalization.
SECOND_SEARCH = 1 << 30
#: Set in the value of a token: a text that holds it goes to the host. The token swallows white space beside it, or the
#: normalizer, which comes before the second search, may change it.
FOR_THE_HOST = 1 << 31
#: Lengths that the kernels try at a place where a token may begin.
MAX_LENGTHS = 64


@dataclass(frozen=True, slots=True)
class AddedTokens:
    """`contents`: the id of each token with its marks. `lengths`: u32, the lengths there are, the longest first.
    `prefixes`: u32 of shape (2048,), a bit for each pair of first bytes, `first << 8 | second`."""

    contents: Strings
    lengths: npt.NDArray[np.uint32]
    prefixes: npt.NDArray[np.uint32]


def build(tokens: Sequence[AddedToken], is_inert: Callable[[str], bool]) -> AddedTokens:
    """The tables of added tokens; raises `UnsupportedError`.

    is_inert: whether the normalizer leaves a character alone whatever stands beside it.
    """
    texts = [token.content.encode() for token in tokens]
    if len(set(texts)) < len(texts):
        raise UnsupportedError("two added tokens are looked for in the same form")
    lengths = sorted({len(text) for text in texts}, reverse=True)
    if len(lengths) > MAX_LENGTHS:
        raise UnsupportedError(f"added tokens of more than {MAX_LENGTHS} lengths")
    if any(token.id >= SECOND_SEARCH for token in tokens):
        raise UnsupportedError("an added token with an id of more than 30 bits")
    values = [
        token.id
        | (SECOND_SEARCH if token.normalized else 0)
        | (FOR_THE_HOST if _is_for_the_host(token, is_inert) else 0)
        for token in tokens
    ]
    return AddedTokens(strings(texts, values), np.array(lengths, dtype=np.uint32), _prefixes(texts))


def _is_for_the_host(token: AddedToken, is_inert: Callable[[str], bool]) -> bool:
    return token.lstrip or token.rstrip or (token.normalized and not all(map(is_inert, token.content)))


def _prefixes(texts: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    present = np.zeros((0x100, 0x100), dtype=np.bool_)
    for text in texts:
        present[text[0], text[1] if len(text) > 1 else slice(None)] = True
    return np.packbits(present.reshape(-1), bitorder="little").view("<u4").astype(np.uint32)
