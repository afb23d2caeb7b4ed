"""Traces over several hops, what is in them and what must not be, metrics, and telemetry that is off."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from chassis_kit import ScriptedService, make_worker, read, request, running, started_broker, write
from opentelemetry.sdk.metrics.export import HistogramDataPoint
from opentelemetry.sdk.trace import ReadableSpan
from otlp_sink import METRICS, TRACES, otlp_sink

from pipeline.instruments import DURATION_BUCKETS_S
from pipeline.ports import Record
from pipeline.readings import Kind
from pipeline.settings import TelemetrySettings
from pipeline.telemetry import SpanKind, Telemetry
from schemas.codes import Code
from schemas.reply import Reply
from schemas.topics import REPAIR, REPLIES, REQUESTS

ROOT = Path(__file__).parents[3]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
HEADERS = (
    ("traceparent", f"00-{TRACE}-{PARENT}-01".encode()),
    ("tracestate", b"vendor=1"),
    ("correlation-id", b"c1"),
)


class Classifier(ScriptedService):
    async def handle(self, record: Record) -> None:
        await self.ctx.forward(REPAIR, record, b"work", tenant="acme", session_id="secret-session")


class Repairer(ScriptedService):
    kind = "repair-worker"
    topics = (REPAIR,)
    group = "repairers"

    async def handle(self, record: Record) -> None:
        with self.ctx.telemetry.span("splice"):
            reply = Reply.failure("r1", Code.OVERLOADED, "", tenant="acme", session_id="secret-session")
            await self.ctx.reply(record, reply, received_us=0)


async def test_one_request_is_one_trace_over_every_hop() -> None:
    telemetry = Telemetry.in_memory()
    classifier, repairer = Classifier(), Repairer()
    async with (
        started_broker() as broker,
        running(make_worker(broker, classifier, telemetry=telemetry)),
        running(make_worker(broker, repairer, telemetry=telemetry)),
    ):
        await write(broker, request().encode(), headers=HEADERS)
        [reply] = await read(broker, REPLIES, 1)
        await broker.commits.until(lambda commits: any(s.topic == REPAIR for c in commits for s in c))
    assert not classifier.ctx._spans
    assert not repairer.ctx._spans
    spans = {span.name: span for span in telemetry.finished_spans()}
    chain = [
        f"process {REQUESTS}",
        f"send {REPAIR}",
        f"process {REPAIR}",
        f"send {REPLIES}",
    ]
    assert set(spans) == {*chain, "splice"}
    parent = PARENT
    for name in chain:
        span = spans[name]
        assert span.context is not None
        assert span.parent is not None
        assert f"{span.context.trace_id:032x}" == TRACE
        assert f"{span.parent.span_id:016x}" == parent
        parent = f"{span.context.span_id:016x}"
    headers = dict(reply.headers)
    assert headers["traceparent"] == f"00-{TRACE}-{parent}-01".encode()
    assert headers["tracestate"] == b"vendor=1"
    assert headers["correlation-id"] == b"c1"
    splice = spans["splice"]
    assert splice.parent is not None
    assert splice.parent.span_id == spans[f"process {REPAIR}"].get_span_context().span_id
    check_attributes(spans, telemetry)


def check_attributes(spans: dict[str, ReadableSpan], telemetry: Telemetry) -> None:
    process, send = spans[f"process {REPAIR}"], spans[f"send {REPAIR}"]
    partition = str(dict(send.attributes or {})["messaging.destination.partition.id"])
    assert process.kind is SpanKind.CONSUMER
    assert dict(process.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": REPAIR,
        "messaging.destination.partition.id": partition,
        "messaging.consumer.group.name": "repairers",
        "messaging.kafka.offset": 0,
        "messaging.message.body.size": 4,
        "toksplice.path": "none",
        "toksplice.route": "none",
        "toksplice.engine": "none",
        "toksplice.reason": "",
    }
    assert send.kind is SpanKind.PRODUCER
    conversation = dict(send.attributes or {})["messaging.message.conversation_id"]
    assert conversation == telemetry.conversation_id("acme", "secret-session")
    everything = "".join(span.to_json() for span in spans.values())
    assert "secret-session" not in everything
    assert "private words" not in everything
    assert send.resource.attributes["service.name"] == "toksplice-test"
    assert send.resource.attributes["service.instance.id"] == "test"


async def test_failures_are_named_in_spans_without_their_text() -> None:
    telemetry = Telemetry.in_memory()

    async def handler(record: Record) -> None:
        raise RuntimeError("private words")

    async with (
        started_broker() as broker,
        running(make_worker(broker, ScriptedService(handler), telemetry=telemetry)),
    ):
        await write(broker, request().encode())
        await broker.committed(1)
    with pytest.raises(ZeroDivisionError), telemetry.span("mine"):
        raise ZeroDivisionError("private words")
    spans = telemetry.finished_spans()
    assert "private words" not in "".join(span.to_json() for span in spans)
    failed = {span.name: (span.attributes or {}).get("error.type") for span in spans}
    assert failed == {f"process {REQUESTS}": "RuntimeError", f"send {REPLIES}": None, "mine": "ZeroDivisionError"}


async def test_durations_fit_their_buckets_and_point_to_their_trace() -> None:
    telemetry = Telemetry.in_memory()
    async with (
        started_broker() as broker,
        running(make_worker(broker, Repairer(), telemetry=telemetry)),
    ):
        await write(broker, b"work", topic=REPAIR, headers=HEADERS)
        await broker.committed(1, topic=REPAIR)
    [point] = telemetry.metric_points("toksplice.request.duration")
    assert isinstance(point, HistogramDataPoint)
    assert tuple(point.explicit_bounds) == DURATION_BUCKETS_S
    assert (DURATION_BUCKETS_S[0], DURATION_BUCKETS_S[-1]) == (0.00005, 60.0)
    [exemplar] = point.exemplars
    assert f"{exemplar.trace_id:032x}" == TRACE


def test_a_session_is_a_keyed_hash() -> None:
    settings = TelemetrySettings(conversation_key="a key")
    one, two = Telemetry.disabled(), Telemetry.create(settings, keep_metrics=True)
    assert one.conversation_id("t", "s") == one.conversation_id("t", "s")
    assert one.conversation_id("t", "s") != two.conversation_id("t", "s")
    assert one.conversation_id("t", "s") != one.conversation_id("ts", "")
    assert one.conversation_id("t", "") == ""
    assert two.conversation_id("t", "s") == Telemetry.create(settings, keep_metrics=True).conversation_id("t", "s")
    assert one.conversation_id("t", "s") == Telemetry.disabled().conversation_id("t", "s"), "one key a process"


def test_a_process_without_a_key_draws_its_own() -> None:
    code = "from pipeline.telemetry import Telemetry; print(Telemetry.disabled().conversation_id('t', 's'))"
    hashes = {subprocess.check_output([sys.executable, "-c", code], cwd=ROOT) for _ in range(2)}
    assert len(hashes) == 2


@pytest.mark.parametrize("headers", [HEADERS, (), (("traceparent", b"nonsense"),)])
async def test_telemetry_that_is_off_starts_nothing_and_passes_traces_on(
    headers: tuple[tuple[str, bytes], ...],
) -> None:
    threads = set(threading.enumerate())
    telemetry = Telemetry.create(TelemetrySettings(), kind="classifier")
    async with (
        started_broker() as broker,
        running(make_worker(broker, Classifier(), telemetry=telemetry)),
    ):
        await write(broker, b"x", headers=headers)
        [record] = await read(broker, REPAIR, 1)
    assert dict(record.headers) == dict(headers)
    assert set(threading.enumerate()) == threads
    assert telemetry.finished_spans() == ()
    assert telemetry.metric_points("toksplice.requests") == []
    telemetry.shutdown()


def test_with_an_endpoint_spans_and_metrics_are_exported() -> None:
    with otlp_sink() as sink:
        settings = TelemetrySettings(otlp_endpoint=f"{sink.endpoint}/", conversation_key="k")
        telemetry = Telemetry.create(settings, kind="repair-worker", instance="i-1")
        again = Telemetry.create(settings, kind="classifier")
        assert telemetry.conversation_id("t", "s") == again.conversation_id("t", "s")
        with telemetry.span("work"):
            telemetry.requests.add(1, {"path": "repair"})
        telemetry.shutdown()
        again.shutdown()
    assert b"toksplice-repair-worker" in sink.bodies[TRACES][0]
    assert b"toksplice.requests" in sink.bodies[METRICS][0]


def test_metrics_can_be_kept_without_being_sent() -> None:
    threads = set(threading.enumerate())
    telemetry = Telemetry.create(TelemetrySettings(), kind="repair-worker", instance="i-1", keep_metrics=True)
    assert (telemetry.recording, telemetry.tracing) == (True, False)
    assert telemetry.points() == []
    with telemetry.span("work"):
        telemetry.requests.add(2, {"path": "repair"})
        telemetry.sessions.set(3)
        telemetry.request_duration.record(0.003, {"path": "cpu"})
    requests, sessions, duration = sorted(telemetry.points(), key=lambda point: point.kind)
    assert (requests.name, requests.kind, requests.value) == ("toksplice.requests", Kind.COUNTER, 2)
    assert (requests.job, requests.instance) == ("toksplice-repair-worker", "i-1")
    assert requests.labels == (("path", "repair"),)
    assert (sessions.kind, sessions.value, sessions.unit) == (Kind.GAUGE, 3, "{session}")
    assert (duration.kind, duration.bounds, sum(duration.counts)) == (Kind.HISTOGRAM, DURATION_BUCKETS_S, 1)
    assert duration.counts[DURATION_BUCKETS_S.index(0.005)] == 1
    assert duration.exemplars == (), "there is no trace that could explain it"
    assert set(threading.enumerate()) == threads
    assert telemetry.finished_spans() == ()
    telemetry.shutdown()


async def test_a_worker_reports_zero_before_anything_happened() -> None:
    telemetry = Telemetry.in_memory()
    async with started_broker() as broker, running(make_worker(broker, Classifier(), telemetry=telemetry)):
        points = {point.name: point for point in telemetry.points() if point.kind is Kind.COUNTER}
    for name in ("need_text", "replays", "rebalances", "retries", "handlers.stuck", "dead_letters"):
        assert points[f"toksplice.{name}"].value == 0, name
    assert dict(points["toksplice.dead_letters"].labels) == {"topic": REQUESTS, "code": "internal"}
    assert dict(points["toksplice.retries"].labels) == {"worker": Classifier.kind}
