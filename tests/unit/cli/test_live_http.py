"""The live page's server: what it answers, what it refuses, and what bounds a connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from cli.live import http as live_http
from cli.live.http import CONNECTIONS_MAX, HEAD_BYTES_MAX, Address, Answer, HttpServer


def broken() -> Answer:
    raise RuntimeError("private words")


@pytest.fixture
async def server() -> AsyncIterator[tuple[HttpServer, Address]]:
    it = HttpServer({"/": lambda: Answer(b"<p>\n", "text/html; charset=utf-8", {"X-Own": "1"}), "/broken": broken})
    address = await it.start(Address("127.0.0.1", 0))
    yield it, address
    await it.stop()


async def exchange(address: Address, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer; status 0 when the connection was closed without one."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(request)
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
    if not answer:
        return 0, {}, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


async def turns_until(condition: Callable[[], bool]) -> None:
    """Let the server's tasks run until what they do is done; a guard around it bounds the wait."""
    while not condition():  # noqa: ASYNC110 - the server tells nobody what it has accepted
        await asyncio.sleep(0)


def get(address: Address, path: str = "/", *, method: str = "GET", host: str | None = None, more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host or address}\r\n{more}\r\n".encode()


async def test_a_path_is_answered(server: tuple[HttpServer, Address]) -> None:
    _, address = server
    status, headers, body = await exchange(address, get(address, "/?query=is-nothing"))
    assert (status, body) == (200, b"<p>\n")
    assert headers["Content-Length"] == "4"
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Own"] == "1"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Connection"] == "close"
    assert "Server" not in headers


async def test_head_is_get_without_the_body(server: tuple[HttpServer, Address]) -> None:
    _, address = server
    status, headers, body = await exchange(address, get(address, method="HEAD"))
    assert (status, headers["Content-Length"], body) == (200, "4", b"")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"])
async def test_its_own_names_are_served(server: tuple[HttpServer, Address], host: str) -> None:
    _, address = server
    assert (await exchange(address, get(address, host=f"{host}:{address.port}")))[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost.evil.example:{port}", "127.0.0.1:1", "@"]
)
async def test_other_names_are_not(server: tuple[HttpServer, Address], host: str) -> None:
    """A stranger's name that leads to 127.0.0.1 stays a stranger's."""
    _, address = server
    status, _, body = await exchange(address, get(address, host=host.format(port=address.port)))
    assert (status, body) == (421, b"Misdirected Request\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ("GET / HTTP/1.1\r\n\r\n", 421),
        ("GET /nothing HTTP/1.1\r\nHost: {host}\r\n\r\n", 404),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: {host}\r\n\r\n", 404),
        ("POST / HTTP/1.1\r\nHost: {host}\r\n\r\n", 405),
        ("OPTIONS / HTTP/1.1\r\nHost: {host}\r\n\r\n", 405),
        ("GET / HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\n\r\nhello", 400),
        ("GET / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost : {host}\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: {host}\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: {host}\n\r\n\r\n", 400),
        ("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: {host}\r\n\r\n", 400),
        ("GET / \r\nHost: {host}\r\n\r\n", 400),
        ("\r\n\r\n", 400),
        ("GET /\xe9 HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    ],
)
async def test_what_is_not_served_is_refused(server: tuple[HttpServer, Address], request_: str, status: int) -> None:
    _, address = server
    found, headers, _ = await exchange(address, request_.format(host=address).encode())
    assert found == status
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    if status == 405:
        assert headers["Allow"] == "GET, HEAD"


async def test_a_head_has_a_bound(server: tuple[HttpServer, Address]) -> None:
    _, address = server
    padding = "X-Long: {}\r\n"
    room = HEAD_BYTES_MAX - len(get(address, more=padding.format("")))
    assert (await exchange(address, get(address, more=padding.format("a" * room))))[0] == 200
    assert (await exchange(address, get(address, more=padding.format("a" * (room + 5)))))[0] == 431


async def test_a_failure_is_told_without_its_text(
    server: tuple[HttpServer, Address], caplog: pytest.LogCaptureFixture
) -> None:
    _, address = server
    with caplog.at_level(logging.DEBUG):
        status, _, body = await exchange(address, get(address, "/broken"))
    assert (status, body) == (500, b"Internal Server Error\n")
    assert "RuntimeError" in caplog.text
    assert "private words" not in caplog.text
    assert (await exchange(address, get(address)))[0] == 200


async def test_further_connections_are_closed_at_once(server: tuple[HttpServer, Address]) -> None:
    it, address = server
    idle = [await asyncio.open_connection(address.host, address.port) for _ in range(CONNECTIONS_MAX)]
    async with asyncio.timeout(30):
        await turns_until(lambda: len(it._connections) == CONNECTIONS_MAX)
        assert (await exchange(address, get(address)))[0] == 0
        for _, writer in idle:
            writer.close()
        await turns_until(lambda: not it._connections)
        assert (await exchange(address, get(address)))[0] == 200


async def test_a_connection_that_says_nothing_is_closed(
    server: tuple[HttpServer, Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = server
    monkeypatch.setattr(live_http, "EXCHANGE_S", 0.0)
    assert (await exchange(address, b"GET"))[0] == 0


async def test_stopping_waits_for_nobody() -> None:
    it = HttpServer({})
    address = await it.start(Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    async with asyncio.timeout(30):
        await turns_until(lambda: bool(it._connections))
        await it.stop()
        assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(address.host, address.port)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8341", Address("127.0.0.1", 8341)),
        ("127.9.9.9:0", Address("127.9.9.9", 0)),
        ("localhost:1", Address("localhost", 1)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_addresses_on_loopback(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["0.0.0.0:80", "192.168.0.1:80", "[::]:80", "example.org:80", "127.0.0.1", ":80", "127.0.0.1:65536"],
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not (HOST:PORT|on loopback)"):
        Address.parse(text)
