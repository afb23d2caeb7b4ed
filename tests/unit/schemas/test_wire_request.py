"""Requests: what each op needs, positions, and who sent a broken one."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_examples import REQUEST, pack, raw

from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.request import NEEDED_BY_OP, Base, Identity, Op, Request, Want, peek_identity


@pytest.mark.parametrize(("op", "name"), [(op, name) for op, names in NEEDED_BY_OP.items() for name in names])
def test_what_an_op_needs(op: Op, name: str) -> None:
    whole = dataclasses.replace(REQUEST, op=op)
    assert Request.decode(whole.encode()) == whole
    top = raw(whole)
    del top[name]
    for bent in (top, top | {name: None}):
        with pytest.raises(ProtocolError) as caught:
            Request.decode(pack(bent))
        assert (caught.value.code, caught.value.field) == (Code.BAD_TYPE, name)
        assert op.value in caught.value.message


@pytest.mark.parametrize("op", Op)
def test_an_op_runs_on_what_it_needs_alone(op: Op) -> None:
    always = {"request_id", "session_id", "tokenizer", "op", "v"}
    top = {name: value for name, value in raw(REQUEST).items() if name in always | set(NEEDED_BY_OP[op])}
    request = Request.decode(pack(top | {"op": op.value}))
    assert request.op is op
    assert (request.tenant, request.add_special_tokens, request.want, request.offsets) == (
        "",
        False,
        Want.PATCH,
        False,
    )
    assert request.deadline_ms is None


@pytest.mark.parametrize("op", [op for op in Op if op is not Op.TEXT])
def test_a_one_off_is_only_for_text(op: Op) -> None:
    with pytest.raises(ProtocolError) as caught:
        dataclasses.replace(REQUEST, op=op, session_id="").encode()
    assert (caught.value.code, caught.value.field) == (Code.BAD_TYPE, "session_id")
    assert dataclasses.replace(REQUEST, op=Op.TEXT, session_id="").encode()


def test_a_session_is_not_forked_onto_itself() -> None:
    with pytest.raises(ProtocolError) as caught:
        dataclasses.replace(REQUEST, op=Op.FORK, new_session=REQUEST.session_id).encode()
    assert caught.value.field == "new_session"


@pytest.mark.parametrize(
    ("op", "positions", "field"),
    [
        (Op.SPLICE, {"start": 5, "end": 4}, "start"),
        (Op.SPLICE, {"start": 5, "end": 21}, "end"),
        (Op.TRUNCATE, {"length": 21}, "length"),
        (Op.SPLICE, {"start": 20, "end": 20}, None),
        (Op.SPLICE, {"start": 0, "end": 20}, None),
        (Op.TRUNCATE, {"length": 20}, None),
        (Op.TRUNCATE, {"length": 0}, None),
        (Op.APPEND, {"start": 5, "end": 4, "length": 99}, None),
    ],
)
def test_positions_fit_the_text_that_base_names(op: Op, positions: dict[str, int], field: str | None) -> None:
    request = dataclasses.replace(REQUEST, op=op, base=Base(revision=1, length=20), **positions)
    if field is None:
        assert Request.decode(request.encode()) == request
        return
    with pytest.raises(ProtocolError) as caught:
        request.encode()
    assert (caught.value.code, caught.value.field) == (Code.BAD_POSITION, field)


def test_a_request_id_comes_back_as_it_was_given() -> None:
    for request_id in ("1", b"1", "é", b"\xff"):
        request = Request(request_id=request_id, tokenizer="t", op=Op.TEXT, text="")
        decoded = Request.decode(request.encode()).request_id
        assert (decoded, type(decoded)) == (request_id, type(request_id))


def test_identity_of_records_that_decoding_refuses() -> None:
    whole = Identity("r-1", "acme", "s-1")
    top = raw(REQUEST)
    data = pack(top)
    for bent in (
        data + b"\x00",
        data[:-1],
        pack(top | {"v": 2}),
        pack(top | {"op": 5}),
        pack(top | {"text": "\ud800"}),
        pack({"text": "\ud800"} | {name: value for name, value in top.items() if name != "text"}),
        pack({"first": [[{}] * 300] * 300} | top),
        b"\xdf\xff\xff\xff\xff" + data[3:] if data[0] == 0xDE else b"\xdf\xff\xff\xff\xff" + data[1:],
    ):
        with pytest.raises(ProtocolError):
            Request.decode(bent)
        assert peek_identity(bent) == whole
    assert peek_identity(data) == whole


@pytest.mark.parametrize(
    ("value", "identity"),
    [
        ({"request_id": b"\xff"}, Identity(b"\xff", "", "")),
        ({"request_id": "r", "tenant": 5, "session_id": "s"}, Identity("r", "", "s")),
        ({"request_id": "r", "tenant": "t" * 65, "session_id": "a\0b"}, Identity("r", "", "")),
        ({"request_id": "r", "tenant": [[]], "session_id": "s"}, Identity("r", "", "")),
        ({"request_id": "r", "tenant": {}, "session_id": "s"}, Identity("r", "", "")),
        ({"request_id": 5, "session_id": "s"}, None),
        ({"request_id": "x" * 65}, None),
        ({"request_id": ""}, None),
        ({"session_id": "s"}, None),
        ({}, None),
        ([], None),
        (None, None),
        ("r", None),
    ],
)
def test_identity_is_only_what_a_reply_can_carry(value: object, identity: Identity | None) -> None:
    assert peek_identity(pack(value)) == identity


def test_identity_in_a_record_cut_at_any_byte() -> None:
    data = REQUEST.encode()
    seen = [peek_identity(data[:size]) for size in range(len(data) + 1)]
    assert seen[0] is None
    assert seen[-1] == Identity("r-1", "acme", "s-1")
    known = [sum(map(bool, identity or ())) for identity in seen]
    assert known == sorted(known)


@given(st.binary(max_size=200))
def test_identity_never_raises(data: bytes) -> None:
    peek_identity(data)
    peek_identity(b"\x81\xaarequest_id" + data)
