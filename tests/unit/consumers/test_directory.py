"""The classifier's views: which sessions are live, which workers encode."""

from __future__ import annotations

from consumers.classifier.directory import CPU_KIND, GPU_KIND, Directory, EncoderView
from consumers.classifier.router import Encoder
from schemas.health import Cost, Health
from schemas.state import SessionRecord

FINGERPRINT = "f" * 64


def session(number: int, **changes: object) -> SessionRecord:
    fields = {"session_id": f"s{number}", "fingerprint": FINGERPRINT, "epoch": 1, "worker": "w"}
    return SessionRecord(**(fields | changes))  # type: ignore[arg-type]


def announce(directory: Directory, record: SessionRecord) -> None:
    directory.apply(record.key, record.encode())


def live(directory: Directory, number: int, **changes: object) -> bool:
    record = session(number, **changes)
    return directory.is_live(record.tenant, record.session_id, record.fingerprint, record.add_special_tokens)


def heartbeat(worker: str = "gpu-1", kind: str = "gpu-worker", time_ms: int = 5, **changes: object) -> bytes:
    fields = {"worker": worker, "kind": kind, "time_ms": time_ms, "ready": True}
    return Health(**(fields | changes)).encode()  # type: ignore[arg-type]


def test_a_session_is_live_from_its_record_to_its_tombstone() -> None:
    directory = Directory(sessions_max=10)
    assert not live(directory, 1)
    announce(directory, session(1))
    assert live(directory, 1)
    directory.apply(session(1).key, None)
    assert not live(directory, 1)


def test_every_part_of_the_identity_counts() -> None:
    directory = Directory(sessions_max=10)
    announce(directory, session(1, tenant="a"))
    assert live(directory, 1, tenant="a")
    assert not live(directory, 1)
    assert not live(directory, 2, tenant="a")
    assert not live(directory, 1, tenant="a", fingerprint="e" * 64)
    assert not live(directory, 1, tenant="a", add_special_tokens=True)


def test_the_least_recently_used_session_is_forgotten_first() -> None:
    directory = Directory(sessions_max=2)
    announce(directory, session(1))
    announce(directory, session(2))
    assert live(directory, 1)
    announce(directory, session(3))
    assert [live(directory, number) for number in (1, 2, 3)] == [True, False, True]
    assert len(directory) == 2


def test_records_without_a_key_and_tombstones_of_strangers_change_nothing() -> None:
    directory = Directory(sessions_max=2)
    directory.apply(None, b"x")
    directory.apply(b"stranger", None)
    assert len(directory) == 0


def test_the_last_heartbeat_of_each_gpu_worker_counts() -> None:
    view = EncoderView(GPU_KIND, workers_max=10)
    view.apply(b"gpu-1", heartbeat(time_ms=5, queue_depth=7, tokenizers=(FINGERPRINT,)))
    view.apply(b"gpu-1", heartbeat(time_ms=6, queue_depth=8, tokenizers=(FINGERPRINT,), ready=False))
    expected = Encoder(fingerprints=frozenset({FINGERPRINT}), queue_depth=8, time_ms=6, ready=False)
    assert view.workers == (expected,)
    view.apply(b"gpu-1", None)
    assert view.workers == ()


def test_other_workers_and_unreadable_heartbeats_are_ignored() -> None:
    view = EncoderView(GPU_KIND, workers_max=10)
    view.apply(b"cpu", heartbeat(kind="cpu-fallback"))
    view.apply(b"gpu-1", b"\xc1 not a map")
    view.apply(None, heartbeat())
    assert view.workers == ()


def test_a_view_has_one_kind_and_what_it_measured() -> None:
    view = EncoderView(CPU_KIND, workers_max=10)
    cost = Cost(fixed_us=1, mib_us=2, record_us=3)
    view.apply(b"gpu-1", heartbeat())
    view.apply(b"cpu-1", heartbeat("cpu-1", CPU_KIND, costs={FINGERPRINT: cost}))
    (worker,) = view.workers
    assert worker.costs == {FINGERPRINT: cost}


def test_the_number_of_workers_is_bounded() -> None:
    view = EncoderView(GPU_KIND, workers_max=2)
    for number in range(5):
        view.apply(f"gpu-{number}".encode(), heartbeat(f"gpu-{number}", time_ms=number))
    assert [worker.time_ms for worker in view.workers] == [3, 4]
