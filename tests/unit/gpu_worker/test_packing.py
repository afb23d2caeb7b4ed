"""How texts share a buffer, and how their answers are told apart."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from gpu_worker import chain, device, packing, workspace
from gpu_worker.compiler import added, characters, hashing, machine, scans, vocabulary
from gpu_worker.packing import SEPARATOR, STARTS_AT, TEXT_AT, TEXTS_MAX, TILE


def packed(texts: list[bytes]) -> tuple[packing.Packed, bytes]:
    buffer = np.zeros(TEXT_AT + 4 * TILE + packing.PADDING, dtype=np.uint8)
    return packing.pack(texts, buffer), buffer.tobytes()


def test_texts_lie_between_separators_up_to_the_end_of_their_tile() -> None:
    found, buffer = packed([b"one", b"", b"three"])
    assert found.starts == (1, 5, 6, 12)
    assert found.tiles == 1
    assert buffer[TEXT_AT:].startswith(b"\xffone\xff\xffthree\xff\xff")
    behind = buffer[TEXT_AT + 12 : found.input_bytes]
    assert set(behind) == {SEPARATOR}
    assert np.frombuffer(buffer[:8], dtype="<u4").tolist() == [1, 3]
    assert np.frombuffer(buffer[STARTS_AT : STARTS_AT + 16], dtype="<u4").tolist() == [1, 5, 6, 12]


@pytest.mark.parametrize(
    ("size", "tiles"), [(0, 1), (TILE - 2, 1), (TILE - 1, 2), (2 * TILE - 2, 2), (2 * TILE - 1, 3)]
)
def test_the_last_tile_always_ends_with_a_separator(size: int, tiles: int) -> None:
    found, buffer = packed([b"a" * size])
    assert found.tiles == tiles
    assert buffer[TEXT_AT + tiles * TILE - 1] == SEPARATOR


def test_a_batch_has_room_and_no_more_texts_than_fit() -> None:
    texts = [b"x" * size for size in (10, 20, 30, 500, 5, 5)]
    batches = list(packing.batches(texts, 64))
    assert batches == [[0, 1, 2], [3], [4, 5]]
    assert packing.packed_bytes([texts[index] for index in batches[0]]) == 64
    many = list(packing.batches([b""] * (2 * TEXTS_MAX + 1), 1 << 20))
    assert [len(batch) for batch in many] == [TEXTS_MAX, TEXTS_MAX, 1]
    assert list(packing.batches([], 64)) == []


def test_the_starts_of_all_texts_fit_in_front_of_them() -> None:
    assert STARTS_AT + 4 * (TEXTS_MAX + 1) <= TEXT_AT


def test_each_text_gets_its_own_tokens_counted_from_its_start() -> None:
    texts = [b"one two", b"", b"x"]
    found, _ = packed(texts)
    ids, starts = np.array([7, 8, 9], np.uint32), np.array([0, 3, 9], np.uint32)
    one, nothing, last = packing.unpack(found, ids, starts, np.array([0, 3, 9], np.uint32))
    assert (one.ids.tolist(), one.starts.tolist(), one.pieces.tolist()) == ([7, 8], [0, 3], [0, 3])
    assert (nothing.ids.tolist(), nothing.starts.tolist(), nothing.pieces.tolist()) == ([], [], [])
    assert (last.ids.tolist(), last.starts.tolist(), last.pieces.tolist()) == ([9], [0], [0])


def test_the_kernels_have_the_same_numbers() -> None:
    """Every number that stands both in a kernel and in Python."""
    sources = "".join(path.read_text() for path in sorted(device.KERNELS.parent.iterdir()) if path.suffix != ".md")
    defined = {name: int(value.rstrip("u"), 0) for name, value in re.findall(r"#define (\w+) (\d\w*)$", sources, re.M)}
    shifted = {name: 1 << int(by) for name, by in re.findall(r"#define (\w+) \(1u << (\d+)\)", sources)}
    assert "TILE (THREADS * BYTES_PER_THREAD)" in sources
    found = defined | shifted | {"TILE": defined["THREADS"] * defined["BYTES_PER_THREAD"]}
    expected = {
        "THREADS": device.THREADS,
        "TILE": packing.TILE,
        "SEPARATOR": packing.SEPARATOR,
        "FIRST_TEXT": 1,
        "SHORT_PIECE": workspace.SHORT_PIECE,
        "MEDIUM_PIECE": workspace.MEDIUM_PIECE,
        "LONG_PIECE": workspace.LONG_PIECE,
        "NOT_NORMAL": characters.NOT_NORMAL,
        "LONE": characters.LONE,
        "START_STATE": machine.START_STATE,
        "END_LABEL": machine.END,
        "IDENTITY": scans.IDENTITY,
        "ID_BITS": vocabulary.ID_BITS,
        "RANK_BITS": vocabulary.RANK_BITS,
        "INLINE_BYTES": hashing.INLINE,
        "AT_ONCE": vocabulary.AT_ONCE,
        "SECOND_SEARCH": added.SECOND_SEARCH,
        "FOR_THE_HOST": added.FOR_THE_HOST,
        "MAX_STATES": scans.MAX_STATES,
    }
    assert {name: found[name] for name in expected} == expected
    reasons = {value: name for name, value in found.items() if name.startswith("REFUSED_")}
    assert {number: f"REFUSED_{why.name}" for number, why in chain._REFUSED.items()} == reasons
    assert characters.MAX_CLASSES < characters.LONE


def test_kernels_are_in_the_order_in_which_the_page_lists_them() -> None:
    page = (Path(device.KERNELS).parent / "README.md").read_text()
    names = re.findall(r'extern "C" __global__ void __launch_bounds__\([^)]*\) (\w+)\(', device.kernel_source())
    assert re.findall(r"^\| `(\w+)`", page, re.M) == names
