"""Characters by what the kernels need of each: its class, and whether the normalizer may have something to do there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu_worker.encoder import UnsupportedError
from toksplice.charclass import CODE_POINTS, PROBED, Bits, inert_bits, normal_form
from toksplice.probes import remembered

#: Classes there are at most; above them are marks in the same byte.
MAX_CLASSES = 0x3F
#: Set in the class of a character that stands for itself only between two that do so in any case.
LONE = 0x40
#: Set in the class of a character that the normalizer may change, or join to another one.
NOT_NORMAL = 0x80

_BLOCK = 128


def tables(classes: npt.NDArray[np.uint8], form: str | None) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """By code point >> 7 its block, u16; by block << 7 and the lower bits its class with its marks, u8.

    classes: u8 of shape (CODE_POINTS,). form: what the normalizer makes of a text, if there is one.
    """
    # The last number is the separator's.
    if int(classes.max()) >= MAX_CLASSES:
        raise UnsupportedError("the pre-tokenizer tells too many groups of characters apart")
    marked = classes if form is None else classes | _marks(form)
    blocks, block_of = np.unique(marked.reshape(-1, _BLOCK), axis=0, return_inverse=True)
    return block_of.reshape(-1).astype(np.uint16), blocks.reshape(-1)


def is_inert(char: str, form: str | None) -> bool:
    """Whether the normalizer leaves a character alone whatever stands beside it."""
    return form is None or (ord(char) < PROBED and bool(inert_bits(form)[ord(char)]))


def _marks(form: str) -> npt.NDArray[np.uint8]:
    """A text of inert characters is what the normalizer makes of it (rule R6 of docs/exactness.md). So is one with lone
    characters each of which has inert ones, or the end of the text, on both sides: it composes with nothing, and there
    is no other one to change places with."""
    marks = np.full(CODE_POINTS, NOT_NORMAL, dtype=np.uint8)
    marks[:PROBED][lone_bits(form)] = LONE
    marks[:PROBED][inert_bits(form)] = 0
    return marks


def lone_bits(form: str) -> Bits:
    """Characters that do not decompose and are never the second of a composition: bool, shape (PROBED,). Beside one
    that is inert they are left alone; beside each other they may change places."""
    packed = remembered(
        f"{PROBED}\nlone {form}",
        lambda: np.packbits(_probe_lone(form)),
        lambda stored: stored.dtype == np.uint8 and stored.shape == (PROBED // 8,),
    )
    return np.unpackbits(packed).astype(np.bool_)


def _probe_lone(form: str) -> Bits:
    canonical, whole = normal_form("NFD"), normal_form(form)
    decomposer = normal_form("NFKD" if form.startswith("NFK") else "NFD")
    bits = np.zeros(PROBED, dtype=np.bool_)
    seconds: set[str] = set()
    for point in range(PROBED):
        if 0xD800 <= point < 0xE000:
            continue
        char = chr(point)
        seconds.update(canonical.normalize_str(char)[1:])
        bits[point] = whole.normalize_str(char) == char == decomposer.normalize_str(char)
    bits[[ord(char) for char in seconds if ord(char) < PROBED]] = False
    return bits
