"""The pure checks of the repair worker: does a delta fit, and how long does it make the text?"""

from __future__ import annotations

import pytest
from worker_kit import request

from repair_worker.changes import Fit, code_of, fit, length_after
from schemas.codes import Code
from schemas.request import Base, Op
from toksplice import PositionError, ReferenceFailedError, TextError, TokSpliceError, UnknownTokenizerError

EPOCH = 9
STATE = Base(revision=3, length=10, epoch=EPOCH)


def base(revision: int, length: int = 10, epoch: int | None = None) -> Base:
    return Base(revision=revision, length=length, epoch=epoch)


@pytest.mark.parametrize(
    ("named", "state", "others_wait", "expected"),
    [
        pytest.param(base(3, 10, EPOCH), STATE, False, Fit.FITS, id="same state"),
        pytest.param(base(3, 10), STATE, False, Fit.FITS, id="same state, no epoch"),
        pytest.param(base(3, 10, EPOCH + 1), STATE, False, Fit.STALE, id="another life"),
        pytest.param(base(3, 11, EPOCH), STATE, False, Fit.STALE, id="another length"),
        pytest.param(base(3, 11), STATE, False, Fit.STALE, id="another length, no epoch"),
        pytest.param(base(2, 10, EPOCH), STATE, False, Fit.STALE, id="behind"),
        pytest.param(base(2, 10), STATE, False, Fit.STALE, id="behind, no epoch"),
        pytest.param(base(4, 10, EPOCH), STATE, False, Fit.STALE, id="ahead by an answer that is lost"),
        pytest.param(base(4, 10), STATE, False, Fit.TO_COME, id="ahead of an answer to come"),
        pytest.param(base(1, 10, EPOCH), None, False, Fit.GONE, id="no session, answered before"),
        pytest.param(base(1, 10, EPOCH), None, True, Fit.GONE, id="no session, answered before, others wait"),
        pytest.param(base(1, 10), None, False, Fit.TO_COME, id="ahead of the first text's answer"),
        pytest.param(base(2, 10), None, False, Fit.GONE, id="ahead of nothing that waits"),
        pytest.param(base(2, 10), None, True, Fit.TO_COME, id="ahead of a delta that waits"),
    ],
)
def test_fit(named: Base, state: Base | None, others_wait: bool, expected: Fit) -> None:
    assert fit(named, state, others_wait=others_wait) is expected


@pytest.mark.parametrize(
    ("op", "fields", "expected"),
    [
        (Op.TEXT, {"text": "éé"}, 4),
        (Op.APPEND, {"text": "é"}, 12),
        (Op.SPLICE, {"text": "é", "start": 2, "end": 5}, 9),
        (Op.TRUNCATE, {"length": 3}, 3),
        (Op.FORK, {"new_session": "t"}, 10),
        (Op.CLOSE, {}, 10),
    ],
)
def test_length_after(op: Op, fields: dict[str, object], expected: int) -> None:
    assert length_after(request("r", op, **fields), 10) == expected


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PositionError("x"), Code.BAD_POSITION),
        (TextError("x"), Code.INVALID_UTF8),
        (ReferenceFailedError("x"), Code.REFERENCE_FAILED),
        (UnknownTokenizerError("x"), Code.UNKNOWN_TOKENIZER),
        (TokSpliceError("x"), Code.INTERNAL),
    ],
)
def test_every_failure_of_the_library_has_a_code(error: TokSpliceError, code: Code) -> None:
    assert code_of(error) is code
