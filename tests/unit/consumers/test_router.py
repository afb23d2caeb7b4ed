"""Every row of the routing table, and that no other row exists."""

from __future__ import annotations

import itertools

import pytest

from consumers.classifier.router import (
    Answer,
    Encoder,
    Facts,
    Forward,
    Reason,
    RouterSettings,
    is_expired,
    route,
)
from pipeline.cost import CPU_PRIOR, GPU_PRIOR, expected_us
from schemas.codes import Code
from schemas.health import Cost
from schemas.reply import Path
from schemas.request import Op
from schemas.topics import CPU, GPU, REPAIR

NOW_MS = 1_000_000
FINGERPRINT = "f" * 64
SETTINGS = RouterSettings(gpu_text_bytes_min=2048, heartbeat_age_ms_max=15_000, gpu_queue_depth_max=10)


#: What a worker tells that takes no time at all.
FREE = {FINGERPRINT: Cost(fixed_us=0, mib_us=0, record_us=0)}


def worker(
    *,
    age_ms: int = 0,
    queue_depth: int = 0,
    ready: bool = True,
    fingerprints: tuple[str, ...] = (FINGERPRINT,),
    costs: dict[str, Cost] = FREE,
) -> Encoder:
    return Encoder(
        fingerprints=frozenset(fingerprints),
        queue_depth=queue_depth,
        time_ms=NOW_MS - age_ms,
        ready=ready,
        costs=costs,
    )


def facts(op: Op = Op.TEXT, text_bytes: int = 5000, **fields: object) -> Facts:
    return Facts(**({"op": op, "text_bytes": text_bytes, "fingerprint": FINGERPRINT} | fields))  # type: ignore[arg-type]


CPU_ROW = {
    reason: Forward(topic=CPU, path=Path.CPU, reason=reason)
    for reason in (
        Reason.SHORT_TEXT,
        Reason.NO_GPU_WORKER,
        Reason.GPU_STALE,
        Reason.GPU_NOT_READY,
        Reason.GPU_UNSUPPORTED,
        Reason.GPU_OVERLOADED,
        Reason.CPU_FASTER,
    )
}
SLOW = Cost(fixed_us=10**6, mib_us=0, record_us=0)
GPU_ROW = Forward(topic=GPU, path=Path.GPU, reason=Reason.LONG_TEXT)
LIVE_ROW = Forward(topic=REPAIR, path=Path.REPAIR, reason=Reason.LIVE_SESSION)
DELTA_ROW = Forward(topic=REPAIR, path=Path.REPAIR, reason=Reason.SESSION_OPERATION)
EXPIRED_ROW = Answer(code=Code.EXPIRED, reason=Reason.EXPIRED)
UNKNOWN_ROW = Answer(code=Code.UNKNOWN_TOKENIZER, reason=Reason.UNKNOWN_TOKENIZER)


@pytest.mark.parametrize(
    ("given", "live", "gpu", "expected"),
    [
        pytest.param(facts(deadline_ms=NOW_MS - 1), False, [worker()], EXPIRED_ROW, id="past its deadline"),
        pytest.param(facts(deadline_ms=NOW_MS), False, [worker()], GPU_ROW, id="at its deadline"),
        pytest.param(facts(deadline_ms=NOW_MS + 1), False, [worker()], GPU_ROW, id="before its deadline"),
        pytest.param(facts(Op.APPEND, deadline_ms=NOW_MS - 1), True, [], EXPIRED_ROW, id="a delta past its deadline"),
        pytest.param(facts(fingerprint=None), False, [worker()], UNKNOWN_ROW, id="unknown tokenizer"),
        pytest.param(facts(fingerprint=None, deadline_ms=0), False, [], EXPIRED_ROW, id="the deadline comes first"),
        pytest.param(facts(), True, [worker()], LIVE_ROW, id="text of a live session"),
        pytest.param(facts(text_bytes=0), True, [], LIVE_ROW, id="empty text of a live session"),
        pytest.param(facts(one_off=True), True, [worker()], GPU_ROW, id="a one-off is no session"),
        pytest.param(facts(text_bytes=2048), False, [worker()], GPU_ROW, id="just long enough"),
        pytest.param(facts(text_bytes=2047), False, [worker()], CPU_ROW[Reason.SHORT_TEXT], id="just too short"),
        pytest.param(facts(text_bytes=0), False, [], CPU_ROW[Reason.SHORT_TEXT], id="empty text"),
        pytest.param(facts(), False, [], CPU_ROW[Reason.NO_GPU_WORKER], id="no gpu worker"),
        pytest.param(facts(), False, [worker(age_ms=15_000)], GPU_ROW, id="just fresh enough"),
        pytest.param(facts(), False, [worker(age_ms=15_001)], CPU_ROW[Reason.GPU_STALE], id="too old"),
        pytest.param(facts(), False, [worker(age_ms=-5_000)], GPU_ROW, id="a clock that runs ahead"),
        pytest.param(facts(), False, [worker(ready=False)], CPU_ROW[Reason.GPU_NOT_READY], id="not ready"),
        pytest.param(
            facts(), False, [worker(fingerprints=("a" * 64,))], CPU_ROW[Reason.GPU_UNSUPPORTED], id="other family"
        ),
        pytest.param(facts(), False, [worker(queue_depth=10)], GPU_ROW, id="at its queue limit"),
        pytest.param(
            facts(), False, [worker(queue_depth=11)], CPU_ROW[Reason.GPU_OVERLOADED], id="over its queue limit"
        ),
        pytest.param(
            facts(),
            False,
            [worker(queue_depth=99), worker(ready=False), worker(age_ms=99_999), worker()],
            GPU_ROW,
            id="one good worker is enough",
        ),
        pytest.param(
            facts(),
            False,
            [worker(age_ms=99_999), worker(ready=False), worker(fingerprints=()), worker(queue_depth=99)],
            CPU_ROW[Reason.GPU_OVERLOADED],
            id="the worker that came closest gives the reason",
        ),
        pytest.param(
            facts(),
            False,
            [worker(ready=False, queue_depth=0), worker(queue_depth=11)],
            CPU_ROW[Reason.GPU_OVERLOADED],
            id="an idle worker that is not ready does not help",
        ),
    ],
)
def test_row(given: Facts, live: bool, gpu: list[Encoder], expected: Forward | Answer) -> None:
    assert route(given, live=live, gpu=gpu, cpu=(), now_ms=NOW_MS, settings=SETTINGS) == expected


@pytest.mark.parametrize("op", [op for op in Op if op is not Op.TEXT])
@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("gpu", [[], [worker()]])
def test_session_operations_go_to_the_repair_worker_whatever_else_is_known(
    op: Op, live: bool, gpu: list[Encoder]
) -> None:
    assert route(facts(op), live=live, gpu=gpu, cpu=(), now_ms=NOW_MS, settings=SETTINGS) == DELTA_ROW


def test_every_combination_gets_exactly_one_known_row() -> None:
    rows = {EXPIRED_ROW, UNKNOWN_ROW, LIVE_ROW, DELTA_ROW, GPU_ROW, *CPU_ROW.values()}
    seen = set()
    gpus: list[list[Encoder]] = [
        [],
        [worker(age_ms=99_999)],
        [worker(ready=False)],
        [worker(fingerprints=())],
        [worker(queue_depth=99)],
        [worker(costs={FINGERPRINT: SLOW})],
        [worker()],
    ]
    for op, size, fingerprint, one_off, deadline_ms, live, gpu in itertools.product(
        Op, (0, 5000), (None, FINGERPRINT), (False, True), (None, 0, NOW_MS), (False, True), gpus
    ):
        given = Facts(op=op, text_bytes=size, fingerprint=fingerprint, one_off=one_off, deadline_ms=deadline_ms)
        seen.add(route(given, live=live, gpu=gpu, cpu=(), now_ms=NOW_MS, settings=SETTINGS))
    assert seen == rows


def test_a_request_without_a_deadline_never_expires() -> None:
    assert not is_expired(None, 2**60)


def cost(fixed_us: int = 0, mib_us: int = 0, record_us: int = 0) -> dict[str, Cost]:
    return {FINGERPRINT: Cost(fixed_us=fixed_us, mib_us=mib_us, record_us=record_us)}


def reason(size: int, gpu: list[Encoder], cpu: list[Encoder]) -> Reason:
    decision = route(facts(text_bytes=size), live=False, gpu=gpu, cpu=cpu, now_ms=NOW_MS, settings=SETTINGS)
    return decision.reason


def test_the_lines_that_were_measured_decide_by_size() -> None:
    # At 4 KiB the CPU takes what the GPU takes: 4,096 microseconds.
    gpu, cpu = [worker(costs=cost(4_096 - 4, 1_024))], [worker(costs=cost(0, 1_024 * 1_024))]
    assert reason(4_096, gpu, cpu) is Reason.LONG_TEXT
    assert reason(4_095, gpu, cpu) is Reason.CPU_FASTER


def test_equal_costs_are_the_gpu_s() -> None:
    assert reason(4_096, [worker(costs=cost(7))], [worker(costs=cost(7))]) is Reason.LONG_TEXT
    assert reason(4_096, [worker(costs=cost(8))], [worker(costs=cost(7))]) is Reason.CPU_FASTER


def test_what_waits_counts_on_both_sides() -> None:
    idle, busy = worker(costs=cost(5, 0, 10)), worker(costs=cost(5, 0, 10), queue_depth=3)
    assert reason(4_096, [busy], [idle]) is Reason.CPU_FASTER
    assert reason(4_096, [busy, idle], [idle]) is Reason.LONG_TEXT
    assert reason(4_096, [busy], [busy]) is Reason.LONG_TEXT


def test_a_stale_cpu_worker_is_not_counted_on() -> None:
    gone = worker(costs=cost(0), age_ms=15_001)
    assert reason(4_096, [worker(costs=cost(1))], [gone]) is Reason.LONG_TEXT
    assert reason(4_096, [worker(costs=cost(1))], [worker(costs=cost(0), age_ms=15_000)]) is Reason.CPU_FASTER


def test_before_anything_was_measured_the_priors_decide() -> None:
    fresh = [worker(costs={})]
    for size in (2_048, 8_192, 16_384, 65_536, 1 << 24):
        gpu_first = expected_us(GPU_PRIOR, size) <= expected_us(CPU_PRIOR, size)
        assert reason(size, fresh, []) is (Reason.LONG_TEXT if gpu_first else Reason.CPU_FASTER)
        assert reason(size, fresh, fresh) is reason(size, fresh, [])
    assert reason(4_096, fresh, []) is Reason.CPU_FASTER
    assert reason(65_536, fresh, []) is Reason.LONG_TEXT
