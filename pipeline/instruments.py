"""Every metric of the pipeline: name, unit, buckets, attributes, and who records it.

`Context.reply` records `requests`, `request_duration`, `rejections`, `need_text` and `replays`; the chassis
records `retries`, `dead_letters`, `rebalances`, `handlers_stuck`, `consumer_lag` and `queue_depth`; the
client records `request_e2e_duration`, `client_dropped_replies` and `client_resends`. `pipeline.samples`
records `shadow_samples`, and with the shadow worker `shadow_dropped`; the heartbeat sets `breaker_open`. The
rest is the services' own.

Every attribute has few values, and none comes from a user: `tokenizer` is a registered name; `path`,
`reason`, `route`, `op`, `status`, `code`, `cause` and `outcome` are words of the protocol. `engine`, which is
"native", "gpu" or "reference", follows from the route (`schemas.reply.Route.engine`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from opentelemetry.metrics import Counter, Histogram, Meter

from schemas.codes import Code

if TYPE_CHECKING:
    from opentelemetry.metrics import _Gauge as Gauge

DURATION_BUCKETS_S: Final = (
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
"""50 microseconds (a small splice) to a minute (a cold multi-megabyte text behind a queue)."""

DOUBLING_BUCKETS: Final = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)

BATCH_BUCKETS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Instruments:
    """The instruments, one attribute each."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._make_request_instruments()
        self._make_engine_instruments()
        self._make_gpu_instruments()
        self._make_chassis_instruments()
        self._make_shadow_instruments()

    def _make_request_instruments(self) -> None:
        self.request_duration = self._histogram(
            "toksplice.request.duration",
            "From the classifier's read to the acknowledged answer {path, route, engine, tokenizer, op, status}.",
        )
        self.request_e2e_duration = self._histogram(
            "toksplice.request.e2e.duration", "A client's call, retries included {status}."
        )
        self.requests = self._counter(
            "toksplice.requests", "{request}", "Answers {path, reason, route, engine, status, tokenizer}."
        )
        self.rejections = self._counter("toksplice.rejections", "{request}", "Answers with status rejected {code}.")
        self.need_text = self._counter("toksplice.need_text", "{request}", "Deltas whose session was not held.")
        self.replays = self._counter("toksplice.replays", "{request}", "Repeated requests answered from memory.")
        self.client_dropped_replies = self._counter(
            "toksplice.client.dropped_replies",
            "{reply}",
            "Replies nobody waits for {cause=unknown|malformed}.",
        )
        self.client_resends = self._counter(
            "toksplice.client.resends", "{request}", "Requests sent again by the client {cause}."
        )

    def _make_engine_instruments(self) -> None:
        self.certificates = self._counter(
            "toksplice.certificates", "{certificate}", "Windows of route C checked {outcome=accepted|refused}."
        )
        self.certificate_doublings: Histogram = self._meter.create_histogram(
            "toksplice.certificate.doublings",
            "{doubling}",
            "Times a window was doubled before its certificate held.",
            explicit_bucket_boundaries_advisory=DOUBLING_BUCKETS,
        )
        self.fallbacks = self._counter(
            "toksplice.fallbacks", "{request}", "Requests that left their first path {reason}."
        )
        self.session_evictions = self._counter(
            "toksplice.session.evictions", "{session}", "Sessions ended {cause=ttl|lru|close|replaced|lost|doubted}."
        )
        self.sessions = self._gauge("toksplice.sessions", "{session}", "Sessions held.")
        self.session_bytes = self._gauge("toksplice.session.bytes", "By", "Memory of the sessions held.")
        self.characters_encoded = self._counter(
            "toksplice.characters.encoded", "{character}", "Characters tokenized {engine}."
        )
        self.characters_delivered = self._counter(
            "toksplice.characters.delivered", "{character}", "Characters of text that the answered requests brought."
        )
        self.snapshot_failures = self._counter(
            "toksplice.snapshot.failures", "{snapshot}", "Snapshots not made or not restored {code}."
        )

    def _make_gpu_instruments(self) -> None:
        self.gpu_launch_duration = self._histogram(
            "toksplice.gpu.launch.duration", "One launch on the GPU, with the copies to it and back {tokenizer}."
        )
        self.gpu_launch_texts: Histogram = self._meter.create_histogram(
            "toksplice.gpu.launch.texts",
            "{text}",
            "Texts in one launch {tokenizer}.",
            explicit_bucket_boundaries_advisory=BATCH_BUCKETS,
        )

    def _make_chassis_instruments(self) -> None:
        self.retries = self._counter("toksplice.retries", "{try}", "Records handled again {worker=KIND}.")
        self.dead_letters = self._counter("toksplice.dead_letters", "{record}", "Records given up {topic, code}.")
        self.rebalances = self._counter("toksplice.rebalances", "{rebalance}", "Changes of the partitions held.")
        self.handlers_stuck = self._counter(
            "toksplice.handlers.stuck", "{record}", "Records unfinished for longer than the limit {topic}."
        )
        self.consumer_lag = self._gauge(
            "toksplice.consumer.lag", "{record}", "Records not yet read {topic, partition}."
        )
        self.queue_depth = self._gauge(
            "toksplice.queue.depth", "{record}", "Records read and not finished {topic, partition}."
        )

    def _make_shadow_instruments(self) -> None:
        self.shadow_samples = self._counter(
            "toksplice.shadow.samples", "{sample}", "Answers taken to be checked {tokenizer, path, result=taken}."
        )
        self.shadow_dropped = self._counter(
            "toksplice.shadow.dropped",
            "{sample}",
            "Samples not checked {reason=unsent|queue_full|too_large|broker|failed|budget|unknown_tokenizer}.",
        )
        self.shadow_checked = self._counter(
            "toksplice.shadow.checked",
            "{sample}",
            "Samples checked {tokenizer, path, tier=reference|engine, result=equal|different|failed}.",
        )
        self.shadow_mismatches = self._counter(
            "toksplice.shadow.mismatches", "{sample}", "Wrong answers found {tokenizer, path, route, kind}."
        )
        self.shadow_lag = self._gauge("toksplice.shadow.lag", "s", "Age of the sample last taken up.")
        self.shadow_coverage = self._gauge(
            "toksplice.shadow.coverage", "1", "Share of the latest samples that the reference checked."
        )
        self.breaker_open = self._gauge(
            "toksplice.breaker.open", "{breaker}", "1 while a tokenizer's fast paths are barred here {tokenizer}."
        )

    def report_zero(self, kind: str, topics: Iterable[str]) -> None:
        """Report 0 of what a worker of `kind` that reads `topics` counts and may never see.

        A series that is born at 1 shows no increase, so the first event would be missed by who looks for one.
        """
        for counter in (self.need_text, self.replays, self.rebalances):
            counter.add(0)
        self.retries.add(0, {"worker": kind})
        for topic in topics:
            self.handlers_stuck.add(0, {"topic": topic})
            self.dead_letters.add(0, {"topic": topic, "code": Code.INTERNAL.value})

    def _counter(self, name: str, unit: str, description: str) -> Counter:
        return self._meter.create_counter(name, unit, description)

    def _gauge(self, name: str, unit: str, description: str) -> Gauge:
        return self._meter.create_gauge(name, unit, description)

    def _histogram(self, name: str, description: str) -> Histogram:
        return self._meter.create_histogram(
            name, "s", description, explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S
        )
