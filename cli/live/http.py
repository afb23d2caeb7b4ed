"""A web server for one page on loopback: GET and HEAD of a few fixed paths, nothing else.

It is small enough to be read in full, and strict because a browser on this machine runs the pages of strangers. A
request whose Host header is not one of the server's own addresses is refused, so that a name which a stranger points
at 127.0.0.1 (DNS rebinding) reads nothing. Every connection carries one request and has bounded size and time.
"""

from __future__ import annotations

import asyncio
import http
import ipaddress
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

HEAD_BYTES_MAX: Final = 8 * 1024
"""Request line and headers together."""
EXCHANGE_S: Final = 10.0
"""From the connection to the last byte of its answer."""
CONNECTIONS_MAX: Final = 32
"""At a time; further ones are closed at once."""

_REQUEST_LINE: Final = re.compile(r"([A-Z]+) (/[!-~]*) HTTP/1\.[01]")
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~]*)")
_SAFE: Final = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a path gives. `content_type` and further `headers` are ASCII."""

    body: bytes
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)
    status: http.HTTPStatus = http.HTTPStatus.OK


Routes = Mapping[str, Callable[[], Answer]]
"""Path -> what makes its answer: quick, and called on the event loop."""


@dataclass(frozen=True, slots=True)
class Address:
    """A place on loopback; port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`HOST:PORT`, with an IPv6 address in brackets. Raises ValueError that says what is wrong."""
        match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+)):([0-9]{1,5})", text)
        if match is None or int(match[3]) > 65_535:
            raise ValueError(f"{text[:80]!r} is not HOST:PORT")
        host = match[1] or match[2]
        if not _is_loopback(host):
            raise ValueError(f"{host[:80]!r} is not on loopback: the page asks nobody for a password")
        return cls(host, int(match[3]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_ADDRESS: Final = Address("127.0.0.1", 8341)


class HttpServer:
    """Serves `routes` from `start` to `stop`."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._hosts: frozenset[str] = frozenset()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, address: Address) -> Address:
        """Listen, and give the address with its port. Raises OSError when it is taken."""
        self._server = server = await asyncio.start_server(
            self._connected, address.host, address.port, limit=HEAD_BYTES_MAX
        )
        port = server.sockets[0].getsockname()[1]
        self._hosts = frozenset(str(Address(host, port)) for host in ("localhost", "127.0.0.1", "::1", address.host))
        return Address(address.host, port)

    async def stop(self) -> None:
        """Close the socket and the connections, without waiting for anybody."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._exchange(reader, writer), name="live page connection")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(EXCHANGE_S):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except asyncio.LimitOverrunError:
                    writer.write(_bytes(_refusal(http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)))
                else:
                    writer.write(self._respond(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError):
            pass  # The other side left, or took too long: there is nobody to tell.
        finally:
            writer.transport.abort()

    def _respond(self, head: bytes) -> bytes:
        try:
            method, path, headers = _parse(head)
        except ValueError:
            return _bytes(_refusal(http.HTTPStatus.BAD_REQUEST))
        return _bytes(self._answer(method, path, headers), body=method != "HEAD")

    def _answer(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        if headers.get("host", "").lower() not in self._hosts:
            return _refusal(http.HTTPStatus.MISDIRECTED_REQUEST)
        if method not in ("GET", "HEAD"):
            return _refusal(http.HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"})
        make = self._routes.get(path.partition("?")[0])
        if make is None:
            return _refusal(http.HTTPStatus.NOT_FOUND)
        try:
            return make()
        except Exception as error:
            _log.error("%s could not be made: %s", path.partition("?")[0], type(error).__name__)
            return _refusal(http.HTTPStatus.INTERNAL_SERVER_ERROR)


def _parse(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, path and headers by lower-case name. Raises ValueError for what is not strictly a request without a
    body."""
    first, *lines = head.decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
    request = _REQUEST_LINE.fullmatch(first)
    if request is None:
        raise ValueError("request line")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None or header[1].lower() in headers:
            raise ValueError("header")
        headers[header[1].lower()] = header[2].rstrip()
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise ValueError("body")
    return request[1], request[2], headers


def _refusal(status: http.HTTPStatus, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(f"{status.phrase}\n".encode(), "text/plain; charset=utf-8", headers or {}, status)


def _bytes(answer: Answer, *, body: bool = True) -> bytes:
    headers = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body)), **_SAFE, **answer.headers}
    lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii") + (answer.body if body else b"")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
