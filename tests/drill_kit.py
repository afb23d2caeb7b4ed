"""What the tests of faults share: the tokenizer of drills, and one answer of a worker as its sample would have it."""

from __future__ import annotations

import functools
from pathlib import Path as FilePath
from typing import Any

import numpy as np

import toksplice
from cli.drill.subject import first_text, tokenizer_json, unit
from consumers.cpu_fallback.encode import encode
from pipeline.faults import Faults
from pipeline.samples import Evidence, sample_record
from repair_worker.changes import Change, apply
from schemas.codes import Status
from schemas.limits import DEFAULT_LIMITS
from schemas.reply import Path, Reply, Route
from schemas.request import Base, Op, Request, Want
from schemas.sample import Sample
from schemas.work import Work
from shadow.compare import Difference
from shadow.faults.catalogue import Injection, Kind, Shape
from shadow.judge import Question, judge
from toksplice import Session, Tokenizer

NAME = "drill"


@functools.cache
def drill_tokenizer(*, engine: bool = True) -> Tokenizer:
    return toksplice.load(tokenizer_json(), name=NAME, engine=engine)


class DrillFiles:
    """A registry of the one tokenizer."""

    def __init__(self, folder: FilePath) -> None:
        self._path = folder / "drill.json"
        self._path.write_bytes(tokenizer_json())

    def names(self) -> tuple[str, ...]:
        return (NAME,)

    def resolve(self, name_or_fingerprint: str) -> str:
        return drill_tokenizer().fingerprint

    def name_of(self, fingerprint_hex: str) -> str:
        return NAME

    def path(self, name_or_fingerprint: str) -> FilePath:
        return self._path

    def get(self, fingerprint_hex: str) -> Tokenizer:
        return drill_tokenizer()


def work(op: Op, text: str, **fields: Any) -> Work:
    request = Request(
        **({"request_id": "r", "session_id": "s", "tokenizer": NAME, "op": op, "text": text} | fields),
        add_special_tokens=True,
    )
    return Work(request=request, fingerprint=drill_tokenizer().fingerprint, reason="why", received_us=0)


def work_for(shape: Shape, length: int = 0, *, offsets: bool = False, number: int = 0) -> Work:
    """A request whose answer has this shape, of a session with `length` bytes."""
    base = Base(revision=1, length=length, epoch=1)
    match shape:
        case Shape.FIRST:
            return work(Op.TEXT, first_text(number), offsets=offsets)
        case Shape.ONE_OFF:
            return work(Op.TEXT, first_text(number), session_id="", offsets=True)
        case Shape.SPLICE:
            at = length // 2
            return work(Op.SPLICE, unit(number), base=base, start=at, end=at, offsets=offsets)
        case Shape.WHOLE:
            return work(Op.APPEND, unit(number), base=base, want=Want.IDS, offsets=offsets)
        case Shape.APPEND:
            return work(Op.APPEND, unit(number), base=base, offsets=offsets)


def sampled_answer(faults: Faults, injection: Injection, files: DrillFiles) -> tuple[Reply, Sample, str]:
    """One answer, made as the worker of the injection's path makes it, its sample, and the text of the session that a
    worker then holds."""
    offsets = injection.kind is Kind.OFFSET_SHIFTED
    if injection.path is Path.CPU:
        return _first_answer(faults, injection, files, offsets=offsets)
    session: Session = drill_tokenizer().session(first_text(0), add_special_tokens=True)
    before = session.fork()
    asked = work_for(injection.shape, session.length, offsets=offsets)
    session = faults.state(asked, session)
    reply = faults.answer(asked, _answered(asked, apply(session, asked.request, False)))
    return (
        reply,
        sample_of(_evidence(asked, reply, session, before)),
        session.text,
    )


def sample_of(evidence: Evidence) -> Sample:
    """What the shadow check reads of an answer."""
    return Sample.decode(sample_record(evidence, 1, "w", DEFAULT_LIMITS))


def _first_answer(
    faults: Faults, injection: Injection, files: DrillFiles, *, offsets: bool
) -> tuple[Reply, Sample, str]:
    asked = work_for(injection.shape, offsets=offsets)
    encoded = encode(files, asked, False, faults)
    reply = Reply(
        request_id="r",
        session_id=asked.request.session_id,
        status=Status.OK,
        path=Path.CPU,
        route=encoded.route,
        length=encoded.length,
        ids=encoded.ids,
        total=encoded.total,
        offsets=encoded.offsets,
    )
    reply = faults.answer(asked, reply)
    held = drill_tokenizer().restore(encoded.state).text if encoded.state is not None else ""
    return reply, sample_of(_evidence(asked, reply, None, None)), held


def _answered(asked: Work, change: Change) -> Reply:
    return Reply(
        request_id="r",
        session_id="s",
        status=Status.OK,
        path=Path.REPAIR,
        route=Route(change.patch.route),
        length=change.length,
        keep_left=change.keep_left,
        ids=change.ids,
        keep_right=change.keep_right,
        total=change.patch.total,
        first_changed=change.first_changed,
        offsets=change.offsets,
    )


def _evidence(asked: Work, reply: Reply, session: Session | None, before: Session | None) -> Evidence:
    reply.check(DEFAULT_LIMITS)
    return Evidence(work=asked, reply=reply, tokenizer=NAME, session=session, before=before, certificate="")


def judged(sample: Sample) -> Difference | None:
    return judge(drill_tokenizer(engine=False), Question.of(sample), engine=False)


def ids_of(reply: Reply) -> list[int]:
    return np.frombuffer(reply.ids, "<u4").tolist()
