"""Writes the golden records: one .msgpack file each, and golden.json, which says what each decodes to.

    PYTHONPATH=. python tests/conformance/golden/regenerate.py

Run it after adding a case, or for a new version of the protocol. A change of an existing file within
version 1 breaks clients in other languages that were tested against it.
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path as FilePath

from schemas.codes import Code, Status
from schemas.deadletter import DeadLetter
from schemas.health import Control, Cost, Health, PathStats
from schemas.limits import DEFAULT_LIMITS as LIMITS
from schemas.limits import INT_MAX
from schemas.message import Message, Record
from schemas.reply import Path, Reply, Route
from schemas.request import Base, Op, Request, Want
from schemas.sample import DifferenceKind, Finding, Sample, Tier
from schemas.state import SessionRecord
from schemas.work import Adopt, Drop, Served, Work

FOLDER = FilePath(__file__).parent

FINGERPRINT = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def u32(*values: int) -> bytes:
    """Little-endian u32, as ids and offsets are on the wire."""
    return struct.pack(f"<{len(values)}I", *values)


APPEND = Request(
    request_id="turn-2",
    tenant="acme",
    session_id="agent-7",
    tokenizer="qwen3",
    op=Op.APPEND,
    base=Base(revision=1, length=11, epoch=4_503_599_627_370_497),
    text=" more",
)

SAMPLE = Sample(
    sample_id="9f86d081884c7d659a2feaa0c55ad015",
    time_ms=1_767_225_600_000,
    tenant="acme",
    session_id="agent-7",
    request_id="turn-2",
    op=Op.APPEND,
    fingerprint=FINGERPRINT,
    tokenizer="qwen3",
    path=Path.REPAIR,
    route=Route.A,
    reason="session_operation",
    epoch=4_503_599_627_370_497,
    revision=2,
    text=b"Hello world more",
    ids=u32(9707, 1879, 803),
    offsets=u32(11, 16),
    restarts=b"\x07",
    keep_left=2,
    first_changed=2,
    same_until=2,
    certificate="Resumption(back_bytes=11, forward_bytes=0)",
    engine="native",
    engine_version="0.1.0",
    libraries={"tokenizers": "0.23.3"},
    worker="repair-1",
)

CASES: dict[str, Record] = {
    "request-text": Request(
        request_id="turn-1",
        tenant="acme",
        session_id="agent-7",
        tokenizer="qwen3",
        op=Op.TEXT,
        text="Hello world",
        want=Want.IDS,
        offsets=True,
        deadline_ms=1_767_225_600_000,
    ),
    "request-one-off": Request(request_id=b"\x00\xff", tokenizer=FINGERPRINT, op=Op.TEXT, text=""),
    "request-append": APPEND,
    "request-append-without-epoch": Request(
        request_id="a", session_id="s", tokenizer="t", op=Op.APPEND, base=Base(revision=1, length=0), text="x"
    ),
    "request-append-widest": Request(
        request_id=b"\xfe" * LIMITS.request_id_bytes,
        tenant="ü" * (LIMITS.tenant_bytes // 2),
        session_id="🙂" * (LIMITS.session_id_bytes // 4),
        tokenizer="t" * LIMITS.tokenizer_bytes,
        add_special_tokens=True,
        op=Op.APPEND,
        base=Base(revision=INT_MAX, length=INT_MAX, epoch=INT_MAX),
        text="\0\u0301\ufeff\uffff🙂 𝔘 한국어\r\n",
        deadline_ms=INT_MAX,
    ),
    "request-splice": Request(
        request_id="3",
        session_id="s",
        tokenizer="t",
        op=Op.SPLICE,
        base=Base(revision=2, length=300, epoch=0),
        text="é",
        start=128,
        end=256,
        offsets=True,
    ),
    "request-splice-deletes-all": Request(
        request_id="4",
        session_id="s",
        tokenizer="t",
        op=Op.SPLICE,
        base=Base(revision=3, length=65_536, epoch=1),
        text="",
        start=0,
        end=65_536,
    ),
    "request-truncate": Request(
        request_id="5",
        session_id="s",
        tokenizer="t",
        op=Op.TRUNCATE,
        base=Base(revision=4, length=10, epoch=1),
        length=0,
    ),
    "request-fork": Request(
        request_id="6",
        session_id="s",
        tokenizer="t",
        op=Op.FORK,
        base=Base(revision=4, length=10, epoch=1),
        new_session="s2",
    ),
    "request-close": Request(request_id="7", session_id="s", tokenizer="t", op=Op.CLOSE),
    "reply-ids": Reply(
        request_id="turn-1",
        tenant="acme",
        session_id="agent-7",
        status=Status.OK,
        path=Path.CPU,
        reason="no_session",
        route=Route.D,
        epoch=4_503_599_627_370_497,
        revision=1,
        length=11,
        ids=u32(9707, 11, 1879),
        total=3,
        offsets=u32(0, 5, 5, 6, 6, 11),
        fingerprint=FINGERPRINT,
        encoded_chars=11,
        timings={"queue": 120, "encode": 3},
    ),
    "reply-gpu": Reply(
        request_id="turn-1",
        session_id="agent-7",
        status=Status.OK,
        path=Path.GPU,
        reason="long_text",
        route=Route.G,
        epoch=1,
        revision=1,
        length=11,
        ids=u32(9707, 1879),
        total=2,
        fingerprint=FINGERPRINT,
        encoded_chars=11,
    ),
    "reply-patch": Reply(
        request_id="turn-2",
        tenant="acme",
        session_id="agent-7",
        status=Status.OK,
        path=Path.REPAIR,
        route=Route.C,
        epoch=4_503_599_627_370_497,
        revision=2,
        length=16,
        keep_left=2,
        ids=u32(0, 1, 2**32 - 1),
        keep_right=1,
        total=6,
        first_changed=2,
        fingerprint=FINGERPRINT,
    ),
    "reply-empty-patch": Reply(
        request_id=b"\x01",
        session_id="s",
        status=Status.OK,
        path=Path.GPU,
        route=Route.A,
        epoch=INT_MAX,
        revision=INT_MAX,
        keep_left=70_000,
        total=70_000,
        first_changed=70_000,
        offsets=b"",
        replayed=True,
    ),
    **{
        f"reply-{code.value.replace('_', '-')}": Reply.failure(
            "r", code, "Cause and remedy.", session_id="s", epoch=9, revision=3, length=5
        )
        for code in Code
    },
    "work": Work(
        request=APPEND,
        fingerprint=FINGERPRINT,
        reason="live_session",
        received_us=1_767_225_600_000_000,
        hops=1,
    ),
    "work-one-off": Work(
        request=Request(request_id="o", tokenizer="t", op=Op.TEXT, text="x"),
        fingerprint="f",
        reason="",
        received_us=0,
    ),
    "adopt": Adopt(
        tenant="acme",
        session_id="agent-7",
        fingerprint=FINGERPRINT,
        add_special_tokens=True,
        epoch=4_503_599_627_370_497,
        revision=1,
        state=bytes(range(256)),
        served=Served(request_id="turn-1", path=Path.GPU, reason="large_text", route=Route.D),
    ),
    "adopt-not-served": Adopt(session_id="s", fingerprint="f", epoch=0, revision=1, state=b""),
    "session": SessionRecord(
        tenant="acme", session_id="agent-7", fingerprint=FINGERPRINT, epoch=INT_MAX, worker="repair-1"
    ),
    "session-special": SessionRecord(session_id="s", fingerprint="f", add_special_tokens=True, epoch=0, worker="w"),
    "health": Health(
        worker="repair-1",
        kind="repair-worker",
        tokenizers=("qwen3", "llama3"),
        queue_depth=4,
        time_ms=1_767_225_600_000,
        ready=True,
        paths={"repair": PathStats(count=100_000, p50_us=900, p99_us=4_000)},
    ),
    "health-not-ready": Health(worker="gpu-1", kind="gpu-worker", time_ms=0, ready=False, detail="no device found"),
    "health-costs": Health(
        worker="gpu-1",
        kind="gpu-worker",
        tokenizers=(FINGERPRINT,),
        time_ms=2,
        ready=True,
        costs={FINGERPRINT: Cost(fixed_us=210, mib_us=900, record_us=35)},
    ),
    "health-shadow": Health(
        worker="shadow-1", kind="shadow", time_ms=1, ready=True, counts={"samples": 20, "reference": 19, "dropped": 1}
    ),
    "control-all": Control(tokenizer="*", breaker_open=False, sampling=0.01),
    "control-one": Control(tokenizer=FINGERPRINT, breaker_open=True, sampling=1.0),
    "control-none": Control(tokenizer="*", breaker_open=False, sampling=0.0),
    "drop": Drop(tenant="acme", session_id="agent-7", fingerprint=FINGERPRINT),
    "drop-special-tokens": Drop(session_id="agent-7", fingerprint="f", add_special_tokens=True),
    "sample": SAMPLE,
    "sample-one-off": Sample(
        sample_id="0" * 32,
        time_ms=0,
        request_id="r",
        op=Op.TEXT,
        fingerprint=FINGERPRINT,
        path=Path.CPU,
        route=Route.D,
        text=b"",
        ids=b"",
        worker="cpu-1",
    ),
    "finding": Finding(
        sample=SAMPLE,
        tier=Tier.REFERENCE,
        kind=DifferenceKind.SUBSTITUTED,
        index=2,
        answer_id=803,
        expected_id=804,
        answer_total=3,
        expected_total=3,
        text_bytes=16,
        time_ms=1_767_225_600_500,
        worker="shadow-1",
    ),
    "finding-redacted": Finding(
        sample=replace(SAMPLE, text=b"", ids=b"", offsets=None, restarts=None),
        tier=Tier.ENGINE,
        kind=DifferenceKind.DROPPED,
        index=3,
        expected_id=804,
        answer_total=3,
        expected_total=4,
        redacted=True,
        text_bytes=16,
        time_ms=1_767_225_600_500,
        worker="shadow-1",
    ),
    "dead-letter": DeadLetter(
        topic="tokenize.requests",
        partition=11,
        offset=2**40,
        code=Code.MALFORMED,
        error="the record is not a MessagePack map",
        attempt=1,
        time_ms=1_767_225_600_000,
        worker="classifier-1",
        key=b"acme\0agent-7",
        value=b"\xc1",
        headers=(("correlation-id", b"c"), ("x", b""), ("x", b"\xff")),
    ),
    "dead-letter-empty": DeadLetter(
        topic="t",
        partition=0,
        offset=0,
        code=Code.INTERNAL,
        error="",
        attempt=3,
        time_ms=0,
        worker="w",
        value=b"",
        clipped=True,
    ),
}


def as_json(value: object) -> object:
    """`value` in JSON: binaries as {"bin": hex}, messages as maps without the fields that are None."""
    if isinstance(value, Message):
        pairs = ((row.name, getattr(value, row.name)) for row in value.FIELDS)
        return {name: as_json(item) for name, item in pairs if item is not None}
    if isinstance(value, bytes):
        return {"bin": value.hex()}
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    return value


def main() -> None:
    """Write every file, and remove those of cases that are gone."""
    for old in FOLDER.glob("*.msgpack"):
        if old.stem not in CASES:
            old.unlink()
    described = []
    for name, message in CASES.items():
        (FOLDER / f"{name}.msgpack").write_bytes(message.encode())
        described.append({"file": f"{name}.msgpack", "message": type(message).__name__, "value": as_json(message)})
    page = json.dumps({"v": 1, "cases": described}, ensure_ascii=True, indent=1)
    (FOLDER / "golden.json").write_text(page + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
