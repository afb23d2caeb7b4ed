"""Puts the live page together: reads metrics as time passes, and serves them beside the page itself."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import resources

from cli.live.alerts import Alerts
from cli.live.history import STEP_S, History, Reading
from cli.live.http import Address, Answer, HttpServer
from cli.live.view import view
from pipeline.clock import Clock, SystemClock
from pipeline.readings import Point
from pipeline.telemetry import Telemetry

PAGE, DATA, METRICS = "/", "/live.json", "/metrics"
"""The paths: the page, what it shows, and the metrics for a Prometheus."""


@asynccontextmanager
async def live_page(
    telemetries: Sequence[Telemetry], address: Address, clock: Clock | None = None
) -> AsyncIterator[str]:
    """Serve the page of workers whose telemetry keeps its metrics, while the block lasts; gives its URL.

    Raises OSError when the address is taken.
    """
    board = Board(telemetries, clock or SystemClock())
    server = HttpServer({PAGE: _page_answer, DATA: board.data, METRICS: board.metrics})
    listening = await server.start(address)
    watching = asyncio.create_task(board.watch(), name="live page")
    try:
        yield f"http://{listening}/"
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        await server.stop()


class Board:
    """What is known of the workers behind `telemetries`. All of it belongs to the event loop's thread."""

    def __init__(self, telemetries: Sequence[Telemetry], clock: Clock) -> None:
        self._telemetries = telemetries
        self._clock = clock
        self._started_s = clock.monotonic_s()
        self._history = History()
        self._alerts = Alerts()

    async def watch(self) -> None:
        """Take a reading each `STEP_S`, for ever: alerts are about time that passes with nobody looking."""
        while True:
            self._judge()
            await self._clock.sleep(STEP_S)

    def data(self) -> Answer:
        """The JSON that the page shows."""
        alerts = self._judge()
        now_s = self._clock.monotonic_s()
        shown = view(self._history, alerts, now_ms=self._clock.now_ms(), up_s=now_s - self._started_s)
        return Answer(json.dumps(shown, allow_nan=False).encode(), "application/json")

    def metrics(self) -> Answer:
        """The metrics as they stand, for a Prometheus."""
        from cli.live.exposition import CONTENT_TYPE, exposition

        return Answer(exposition(self._points()), CONTENT_TYPE)

    def _judge(self) -> list[dict[str, object]]:
        now_s = self._clock.monotonic_s()
        self._history.note(Reading.of(now_s, self._points()))
        return self._alerts.judge(now_s, self._history)

    def _points(self) -> list[Point]:
        return [point for telemetry in self._telemetries for point in telemetry.points()]


@functools.cache
def _page_answer() -> Answer:
    page = resources.files(__package__).joinpath("page.html").read_bytes()
    return Answer(page, "text/html; charset=utf-8", {"Content-Security-Policy": content_security_policy(page)})


def content_security_policy(page: bytes) -> str:
    """Only the script and style that are in the page, and data from where the page came from."""

    def hashes(tag: bytes) -> str:
        found = re.findall(rb"<%s>(.*?)</%s>" % (tag, tag), page, re.DOTALL)
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'" for text in found)

    rules = {
        "default-src": "'none'",
        "script-src": hashes(b"script"),
        "style-src": hashes(b"style"),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {sources}" for name, sources in rules.items())
