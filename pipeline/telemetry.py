"""Traces and metrics, written by hand on the OpenTelemetry SDK.

One request is one trace: every hop continues the trace of the record's headers with a consumer span ("process
TOPIC") and starts each record it writes with a producer span ("send TOPIC"). Attribute names are those of the
OpenTelemetry semantic conventions, version `SEMCONV_VERSION`.

With no OTLP endpoint `Telemetry.create` is `Telemetry.disabled`: nothing is recorded, no thread starts, no
connection opens; trace headers of others still pass through unchanged. A process that shows its own metrics
(`keep_metrics`) records these alone. Texts never become attributes, and sessions appear only as a keyed hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.context import Context as OtelContext
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.trace import (
    NoOpTracerProvider,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pipeline.instruments import Instruments
from pipeline.ports import Headers, Record
from pipeline.readings import Point, points_of
from pipeline.settings import TelemetrySettings
from schemas.headers import TRACEPARENT, find, trace_context, with_header

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
    from opentelemetry.sdk.metrics.export import DataPointT, InMemoryMetricReader, MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

__all__ = ["SEMCONV_VERSION", "Attributes", "Span", "SpanKind", "Telemetry"]

SEMCONV_VERSION: Final = "1.44.0"
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{SEMCONV_VERSION}"
SCOPE: Final = "toksplice"

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION_NAME: Final = "messaging.destination.name"
DESTINATION_PARTITION_ID: Final = "messaging.destination.partition.id"
CONSUMER_GROUP_NAME: Final = "messaging.consumer.group.name"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
BODY_SIZE: Final = "messaging.message.body.size"
KAFKA_OFFSET: Final = "messaging.kafka.offset"

Attributes = Mapping[str, str | bool | int | float]

_FLUSH_LIMIT_MS: Final = 5_000
_CONVERSATION_HEX: Final = 32

_PROCESS_KEY: Final = secrets.token_bytes(32)
"""Without a key in the settings, of every worker of this process: a session then has one hash in all its spans."""

_propagator = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class _Memory:
    """What is kept in this process; `spans` only for tests."""

    metrics: InMemoryMetricReader
    spans: InMemorySpanExporter | None = None


class Telemetry(Instruments):
    """One process's (or, embedded, one worker's) source of spans and metrics.

    Make one with `create`, `disabled` or `in_memory`. The instruments are attributes, described in
    `pipeline.instruments`.
    """

    def __init__(
        self,
        tracers: TracerProvider,
        meters: MeterProvider,
        *,
        conversation_key: bytes,
        memory: _Memory | None = None,
    ) -> None:
        super().__init__(meters.get_meter(SCOPE, schema_url=SCHEMA_URL))
        self._tracer = tracers.get_tracer(SCOPE, schema_url=SCHEMA_URL)
        self._tracers = tracers
        self._meters = meters
        self._conversation_key = conversation_key
        self._memory = memory
        self.tracing = not isinstance(tracers, NoOpTracerProvider)
        """False when there are no spans: their attributes need not be computed."""
        self.recording = not isinstance(meters, NoOpMeterProvider)
        """False when there are no metrics: their attributes need not be computed."""

    @classmethod
    def create(
        cls,
        settings: TelemetrySettings,
        *,
        kind: str = "client",
        instance: str | None = None,
        keep_metrics: bool = False,
    ) -> Telemetry:
        """Telemetry that is exported over OTLP/HTTP when `settings.otlp_endpoint` is set, else disabled.

        `kind` and `instance` (by default a random UUID) become service.name=toksplice-KIND and
        service.instance.id. With `keep_metrics`, `points` gives the metrics back, whether exported or not.
        """
        if not settings.otlp_endpoint and not keep_metrics:
            return cls.disabled()
        resource = _resource(kind, instance or str(uuid.uuid4()))
        key = settings.conversation_key.encode() or _PROCESS_KEY
        memory = _Memory(_memory_reader()) if keep_metrics else None
        kept = [memory.metrics] if memory else []
        if not settings.otlp_endpoint:
            return cls(NoOpTracerProvider(), _sdk_meters(kept, resource), conversation_key=key, memory=memory)
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        base = settings.otlp_endpoint.rstrip("/")
        tracers = _sdk_tracers(resource, settings.trace_ratio)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{base}/v1/traces")))
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=f"{base}/v1/metrics"),
            export_interval_millis=settings.metric_interval_s * 1_000,
        )
        return cls(tracers, _sdk_meters([reader, *kept], resource), conversation_key=key, memory=memory)

    @classmethod
    def disabled(cls) -> Telemetry:
        """Telemetry that records nothing and starts nothing."""
        return cls(NoOpTracerProvider(), NoOpMeterProvider(), conversation_key=_PROCESS_KEY)

    @classmethod
    def in_memory(cls, *, kind: str = "test", instance: str = "test") -> Telemetry:
        """Telemetry for tests: `finished_spans` and `metric_points` give back what was recorded."""
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        spans = InMemorySpanExporter()
        memory = _Memory(_memory_reader(), spans)
        resource = _resource(kind, instance)
        tracers = _sdk_tracers(resource, 1.0)
        tracers.add_span_processor(SimpleSpanProcessor(spans))
        return cls(tracers, _sdk_meters([memory.metrics], resource), conversation_key=b"in memory", memory=memory)

    # Spans

    def start_span(
        self,
        name: str,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        headers: Headers | None = None,
        parent: Span | None = None,
        attributes: Attributes | None = None,
    ) -> Span:
        """Start a span that the caller must end. Its parent is `parent`, else the trace in `headers`, else
        the current span."""
        if not self.tracing:
            return _passing_on(parent, headers)
        context: OtelContext | None = None
        if parent is not None:
            context = set_span_in_context(parent, OtelContext())
        elif headers is not None:
            context = _propagator.extract(trace_context(headers), OtelContext())
        return self._tracer.start_span(name, context, kind, attributes=attributes)

    @contextlib.contextmanager
    def span(
        self,
        name: str,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        headers: Headers | None = None,
        parent: Span | None = None,
        attributes: Attributes | None = None,
    ) -> Iterator[Span]:
        """A span around a block, and the current one inside it. An exception marks it as failed by the
        exception's type; the exception's text stays out, since it could quote a user's text."""
        span = self.start_span(name, kind=kind, headers=headers, parent=parent, attributes=attributes)
        try:
            with self.current(span):
                yield span
        except BaseException as error:
            self.fail(span, error)
            raise
        finally:
            span.end()

    @contextlib.contextmanager
    def current(self, span: Span) -> Iterator[None]:
        """Make `span` the current one inside a block, without ending it."""
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield

    @staticmethod
    def fail(span: Span, error: BaseException | str) -> None:
        """Mark a span as failed: `error.type` is the protocol's code or the exception's class name."""
        kind = error if isinstance(error, str) else str(getattr(error, "code", type(error).__qualname__))
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR, kind))

    def start_process_span(self, record: Record, *, group: str = "") -> Span:
        """The consumer span of one record, in the trace that its headers carry."""
        if not self.tracing:
            return _passing_on(None, record.headers)
        attributes: dict[str, str | bool | int | float] = {
            SYSTEM: "kafka",
            OPERATION_NAME: "process",
            OPERATION_TYPE: "process",
            DESTINATION_NAME: record.topic,
            DESTINATION_PARTITION_ID: str(record.partition),
            KAFKA_OFFSET: record.offset,
            BODY_SIZE: len(record.value or b""),
        }
        if group:
            attributes[CONSUMER_GROUP_NAME] = group
        return self.start_span(
            f"process {record.topic}", kind=SpanKind.CONSUMER, headers=record.headers, attributes=attributes
        )

    def start_send_span(
        self,
        topic: str,
        value: bytes,
        *,
        partition: int | None = None,
        parent: Span | None = None,
        headers: Headers | None = None,
        tenant: str = "",
        session_id: str = "",
    ) -> Span:
        """The producer span of one record about to be written; put it into the headers with `inject`.

        `parent` and `headers` are as for `start_span`; the session appears as its `conversation_id`.
        """
        if not self.tracing:
            return _passing_on(parent, headers)
        attributes: dict[str, str | bool | int | float] = {
            SYSTEM: "kafka",
            OPERATION_NAME: "send",
            OPERATION_TYPE: "send",
            DESTINATION_NAME: topic,
            BODY_SIZE: len(value),
        }
        if partition is not None:
            attributes[DESTINATION_PARTITION_ID] = str(partition)
        if session_id:
            attributes[CONVERSATION_ID] = self.conversation_id(tenant, session_id)
        return self.start_span(
            f"send {topic}", kind=SpanKind.PRODUCER, parent=parent, headers=headers, attributes=attributes
        )

    def inject(self, headers: Headers, span: Span | None = None) -> Headers:
        """`headers` with the trace context of `span` (by default the current span) in place of any other.

        Headers come back unchanged where there is no trace to name.
        """
        span = trace.get_current_span() if span is None else span
        if not span.get_span_context().is_valid:
            return headers
        carrier: dict[str, str] = {}
        context = set_span_in_context(span, OtelContext())
        _propagator.inject(carrier, context)
        for name, value in carrier.items():
            headers = with_header(headers, name, value.encode("ascii"))
        return headers

    def conversation_id(self, tenant: str, session_id: str) -> str:
        """What stands for a session in traces: a keyed hash (HMAC-SHA-256, 128 bits); "" for a one-off."""
        if not session_id:
            return ""
        message = f"{tenant}\0{session_id}".encode("utf-8", "surrogatepass")
        return hmac.new(self._conversation_key, message, hashlib.sha256).hexdigest()[:_CONVERSATION_HEX]

    @staticmethod
    def exemplar_context(span: Span) -> OtelContext:
        """Pass as `context` when recording a metric away from its span, so that its exemplar names the
        trace."""
        return set_span_in_context(span, OtelContext())

    # Reading back and closing

    def finished_spans(self) -> tuple[ReadableSpan, ...]:
        """Spans ended so far, oldest first (in-memory telemetry only)."""
        return self._memory.spans.get_finished_spans() if self._memory and self._memory.spans else ()

    def points(self) -> list[Point]:
        """Every metric as it stands now; empty unless metrics are kept. Takes about a millisecond."""
        data = self._memory.metrics.get_metrics_data() if self._memory else None
        return [] if data is None else points_of(data)

    def metric_points(self, name: str) -> list[DataPointT]:
        """Current data points of one instrument, empty unless metrics are kept."""
        data = self._memory.metrics.get_metrics_data() if self._memory else None
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def shutdown(self) -> None:
        """Export what is left, within a bound, and stop. Blocking; safe to call once at the end of a
        process."""
        from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
        from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider

        if isinstance(self._tracers, SdkTracerProvider):
            self._tracers.force_flush(_FLUSH_LIMIT_MS)
            self._tracers.shutdown()
        if isinstance(self._meters, SdkMeterProvider):
            self._meters.shutdown(timeout_millis=_FLUSH_LIMIT_MS)


def _passing_on(parent: Span | None, headers: Headers | None) -> Span:
    """What stands for a span while telemetry is off: the caller's trace, so that it goes on behind us."""
    if parent is not None:
        return parent
    if headers is None or find(headers, TRACEPARENT) is None:
        return trace.INVALID_SPAN
    return trace.get_current_span(_propagator.extract(trace_context(headers), OtelContext()))


def _resource(kind: str, instance: str) -> Resource:
    """Who we are, plus what OTEL_RESOURCE_ATTRIBUTES adds. No other detector runs: they start threads."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = {"service.name": f"toksplice-{kind}", "service.instance.id": instance}
    return OTELResourceDetector().detect().merge(Resource(ours, SCHEMA_URL))


def _sdk_tracers(resource: Resource, ratio: float) -> SdkTracerProvider:
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    sampler = ParentBased(TraceIdRatioBased(ratio))
    return SdkTracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)


def _memory_reader() -> InMemoryMetricReader:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    return InMemoryMetricReader()


def _sdk_meters(readers: Sequence[MetricReader], resource: Resource) -> SdkMeterProvider:
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider

    return SdkMeterProvider(readers, resource, shutdown_on_exit=False)
