"""The edits that led to a sample, from the requests of its session."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.request import Op, Request
from schemas.sample import Sample
from shadow.reproduce import Case, Step


def recorded(sample: Sample, requests: Sequence[Request]) -> Case | None:
    """The longest history among the session's `requests`, in the order of the log, that ends in the sample's text;
    None when there is none: what came before may have left the log, or the session began as a copy of another.

    Requests that cannot have been accepted are left out: a repeat, or a change of another state.
    """
    up_to = [number for number, request in enumerate(requests) if request.request_id == sample.request_id]
    if not up_to:
        return None
    wanted = _once(requests[: up_to[0] + 1])
    for number, request in enumerate(wanted):
        if request.op is Op.TEXT:
            case = Case(_steps(wanted[number:]), sample.add_special_tokens)
            if case.text.encode() == sample.text:
                return case
    return None


def _once(requests: Sequence[Request]) -> list[Request]:
    first: dict[str | bytes, Request] = {}
    for request in requests:
        first.setdefault(request.request_id, request)
    return list(first.values())


def _steps(requests: Sequence[Request]) -> tuple[Step, ...]:
    steps: list[Step] = []
    length = 0
    for request in requests:
        if request.op is not Op.TEXT and (request.base is None or request.base.length != length):
            continue
        step = _step(request, length)
        if step is not None:
            steps.append(step)
            length += len(step.text.encode()) - (step.end - step.start)
    return tuple(steps)


def _step(request: Request, length: int) -> Step | None:
    """A change of a text of `length` bytes; None for what changes none."""
    text = request.text or ""
    match request.op:
        case Op.TEXT:
            return Step(0, length, text, whole=True)
        case Op.APPEND:
            return Step(length, length, text)
        case Op.SPLICE:
            return Step(request.start or 0, request.end or 0, text)
        case Op.TRUNCATE:
            return Step(request.length or 0, length, "")
        case _:
            return None
