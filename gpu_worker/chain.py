"""The whole way of a batch: pack, upload, run the kernels, download, unpack."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from gpu_worker.device import Device, DeviceError, OutOfDeviceMemoryError
from gpu_worker.encoder import Encoding, Refusal
from gpu_worker.packing import TILE, batches, pack, packed_bytes, unpack
from gpu_worker.program import Program
from gpu_worker.workspace import TOTALS, Workspace, upload_tables

#: Room for text, in bytes, that workspaces are made for: the smallest that will do is used. Each workspace takes some
#: 24 times its room on the device, and stays.
CAPACITIES = tuple(TILE << shift for shift in (2, 4, 6, 8, 10, 12))

#: Why a kernel refused a text; the numbers of kernels/common.cuh.
_REFUSED = {
    1: Refusal.NORMALIZATION,
    2: Refusal.ADDED_TOKENS,
    3: Refusal.PIECE_TOO_LONG,
    4: Refusal.INVALID_UTF8,
}


class Chain:
    """An `Encoder`: a program on a device. Raises `OutOfDeviceMemoryError` if its tables have no room there.

    `capacities`: ascending multiples of `TILE`.
    """

    def __init__(self, device: Device, program: Program, *, capacities: Sequence[int] = CAPACITIES) -> None:
        self._device = device
        self._program = program
        self._capacities = tuple(capacities)
        self._tables = upload_tables(device, program)
        self._workspaces: dict[int, Workspace] = {}
        self._lock = threading.Lock()
        self._failed = False

    @property
    def fingerprint(self) -> str:
        """The tokenizer's."""
        return self._program.fingerprint

    @property
    def text_bytes_max(self) -> int:
        """The longest text that is not refused for its length."""
        return self._capacities[-1] - 2

    def encode(self, texts: Sequence[bytes]) -> list[Encoding | Refusal]:
        """See `Encoder.encode`."""
        answers: list[Encoding | Refusal] = []
        with self._lock:
            for batch in batches(texts, self._capacities[-1]):
                answers += self._encode_batch([texts[index] for index in batch])
        return answers

    def _encode_batch(self, texts: Sequence[bytes]) -> Sequence[Encoding | Refusal]:
        if self._failed:
            return [Refusal.DEVICE_ERROR] * len(texts)
        needed = packed_bytes(texts)
        capacity = next((capacity for capacity in self._capacities if capacity >= needed), None)
        if capacity is None:
            return [Refusal.TEXT_TOO_LONG] * len(texts)
        try:
            return self._run(self._workspace(capacity), texts)
        except OutOfDeviceMemoryError:
            return [Refusal.OUT_OF_MEMORY] * len(texts)
        except DeviceError:
            self._failed = True
            return [Refusal.DEVICE_ERROR] * len(texts)

    def _workspace(self, capacity: int) -> Workspace:
        if capacity not in self._workspaces:
            self._workspaces[capacity] = Workspace(self._device, self._program, self._tables, capacity)
        return self._workspaces[capacity]

    def _run(self, space: Workspace, texts: Sequence[bytes]) -> list[Encoding | Refusal]:
        packed = pack(texts, space.staging)
        self._device.upload(space.input[: packed.input_bytes], space.staging[: packed.input_bytes])
        space.run()
        (answer,) = self._device.download(space.answer[: 4 * (TOTALS + len(texts))])
        tokens, pieces, *refused = answer.tolist()
        if all(refused):
            return [_REFUSED[why] for why in refused]
        ids, starts, begins = self._device.download(
            space.ids[: 4 * tokens], space.starts[: 4 * tokens], space.pieces[: 4 * pieces]
        )
        encodings = unpack(packed, ids, starts, begins)
        return [_REFUSED[why] if why else encoding for why, encoding in zip(refused, encodings, strict=True)]
