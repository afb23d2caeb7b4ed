"""Where tests send OTLP/HTTP: it keeps every byte of what comes, on loopback."""

from __future__ import annotations

import gzip
import http.server
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TRACES, METRICS = "/v1/traces", "/v1/metrics"


@dataclass
class Sink:
    """`bodies`: path -> what was sent there, in order, unpacked."""

    endpoint: str = ""
    bodies: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def trace_ids(self) -> set[str]:
        """The traces of every span that came."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies[TRACES]]
        return {
            span.trace_id.hex()
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }


@contextmanager
def otlp_sink() -> Iterator[Sink]:
    """A sink that listens while the block lasts."""
    sink = Sink()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            sink.bodies[self.path].append(gzip.decompress(body) if packed else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_request(self, code: object = None, size: object = None) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        sink.endpoint = f"http://127.0.0.1:{server.server_port}"
        try:
            yield sink
        finally:
            server.shutdown()
            thread.join()
