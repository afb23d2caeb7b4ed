"""Bad bytes: every one of them is a ProtocolError with the right code and field, and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_examples import EXAMPLES, IDS, REQUEST, pack, places, raw, wrong_values

from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.limits import INT_MAX, Limits
from schemas.message import Record
from schemas.reply import Reply
from schemas.request import Op, Request
from schemas.work import Adopt, Drop, Work, WorkRecord, decode_work_record

each_message = pytest.mark.parametrize("example", EXAMPLES, ids=IDS)


def refusal(kind: type[Record], data: bytes, limits: Limits | None = None) -> ProtocolError:
    """The error that `data` decodes to."""
    with pytest.raises(ProtocolError) as caught:
        kind.decode(data, limits) if limits else kind.decode(data)
    return caught.value


def _wrong_types() -> Iterator[object]:
    for example in EXAMPLES:
        for name, row, put in places(example):
            for value in wrong_values(row):
                label = f"{type(example).__name__}-{name}-{type(value).__name__}"
                yield pytest.param(example, name, put, value, id=label)


@pytest.mark.parametrize(("example", "name", "put", "value"), list(_wrong_types()))
def test_a_wrong_type_is_bad_type_and_names_the_field(example, name, put, value) -> None:
    top = raw(example)
    put(top, value)
    error = refusal(type(example), pack(top))
    assert (error.code, error.field) == (Code.BAD_TYPE, name)
    assert not error.retriable


@each_message
def test_a_missing_field_that_is_needed_is_bad_type(example: Record) -> None:
    needed = [row.name for row in example.FIELDS if row.needed == "yes"]
    assert needed
    for name in needed:
        top = raw(example)
        del top[name]
        error = refusal(type(example), pack(top))
        assert (error.code, error.field) == (Code.BAD_TYPE, name)


@each_message
@pytest.mark.parametrize("version", ["absent", None, 0, 2, True, 1.0, "1", -1])
def test_another_version_is_bad_version(example: Record, version: object) -> None:
    top = raw(example)
    if version == "absent":
        del top["v"]
    else:
        top["v"] = version
    error = refusal(type(example), pack(top))
    assert (error.code, error.field) == (Code.BAD_VERSION, "v")


@each_message
def test_a_record_cut_at_any_byte_is_malformed(example: Record) -> None:
    data = example.encode()
    for size in range(len(data)):
        assert refusal(type(example), data[:size]).code is Code.MALFORMED


@each_message
def test_trailing_bytes_are_malformed(example: Record) -> None:
    for tail in (b"\x00", b"\xc0", b"\xc1", example.encode()):
        assert refusal(type(example), example.encode() + tail).code is Code.MALFORMED


@each_message
@pytest.mark.parametrize("value", [None, True, 7, 1.5, "v", b"v", [], [["v", 1]], msgpack.ExtType(1, b"")], ids=repr)
def test_what_is_not_a_map_is_malformed(example: Record, value: object) -> None:
    assert refusal(type(example), pack(value)).code is Code.MALFORMED


@each_message
def test_unknown_fields_and_nil_for_optional_fields_are_ignored(example: Record) -> None:
    top = raw(example)
    top["zzz"] = {"deep": [[], {}, 1, b"", msgpack.ExtType(9, b"x"), msgpack.Timestamp(1, 2)]}
    assert type(example).decode(pack(top)) == example
    # Without its ids a reply with offsets contradicts itself.
    optional = [row.name for row in example.FIELDS if not row.needed and row.name != "ids"]
    for name in optional:
        assert type(example).decode(pack(top | {name: None})) is not None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x82\xa1v\x01\xa1v\x01", id="duplicate key"),
        pytest.param(b"\x82\xa1v\x01\xa1z\x82\xa1a\x01\xa1a\x02", id="duplicate key in an unknown map"),
        pytest.param(b"\x82\xa1v\x01\x05\x01", id="int key"),
        pytest.param(b"\x82\xa1v\x01\xc4\x01a\x01", id="bin key"),
        pytest.param(b"\x82\xa1v\x01\xc0\x01", id="nil key"),
        pytest.param(b"\x82\xa1v\x01\x91\x01\x01", id="array key"),
        pytest.param(b"\xc1", id="reserved byte"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="a map that claims 2^32 - 1 entries"),
        pytest.param(b"\x82\xa1v\x01\xa1z\xdd\xff\xff\xff\xff", id="an array that claims 2^32 - 1 items"),
        pytest.param(b"\x82\xa1v\x01\xa1z\xdb\xff\xff\xff\xff", id="a str that claims 2^32 - 1 bytes"),
        pytest.param(b"\x82\xa1v\x01\xa1z\xc6\xff\xff\xff\xff", id="a bin that claims 2^32 - 1 bytes"),
        pytest.param(b"\x82\xa1v\x01\xa1z" + b"\x91" * 9 + b"\x01", id="nested too deeply"),
        pytest.param(b"\x82\xa1v\x01\xa1z" + b"\x91" * 5000 + b"\x01", id="nested absurdly"),
        pytest.param(pack({"v": 1, "z": [0] * 257}), id="too many items"),
        pytest.param(pack({"v": 1} | {str(n): n for n in range(256)}), id="too many fields"),
        pytest.param(pack({"v": 1, "z": [[[]] * 200, [[]] * 100]}), id="too many containers"),
        pytest.param(b"\x82\xa1v\x01\xa1z\xc7\x05\xff12345", id="a timestamp of five bytes"),
    ],
)
def test_bad_structure_is_malformed(data: bytes) -> None:
    for example in EXAMPLES:
        assert refusal(type(example), data).code is Code.MALFORMED
    with pytest.raises(ProtocolError) as caught:
        decode_work_record(data)
    assert caught.value.code is Code.MALFORMED


def test_nesting_and_counts_up_to_the_bound_are_read() -> None:
    value: object = 1
    for _ in range(7):
        value = [value]
    top = raw(REQUEST) | {"deep": value, "wide": [0] * 256, "many": [[]] * 240}
    assert Request.decode(pack(top)) == REQUEST


@pytest.mark.parametrize("bad", ["\ud800", "a\udfffb"], ids=ascii)
def test_a_lone_surrogate_is_invalid_utf8_both_ways(bad: str) -> None:
    for example in EXAMPLES:
        for name, row, put in places(example):
            if row.kind.label not in ("str", "str or bin") or row.kind.bound(Limits()).startswith("`"):
                continue
            top = raw(example)
            put(top, bad)
            error = refusal(type(example), pack(top))
            assert (error.code, error.field) == (Code.INVALID_UTF8, name)
    with pytest.raises(ProtocolError) as caught:
        Request(request_id="r", tokenizer="t", op=Op.TEXT, text=bad).encode()
    assert (caught.value.code, caught.value.field) == (Code.INVALID_UTF8, "text")


@pytest.mark.parametrize(
    "bad",
    [b"\xff", b"\xc3", b"\xc0\x80", b"\xe2\x82", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xf0\x9f\x99"],
    ids=lambda b: b.hex(),
)
def test_invalid_utf8_names_the_field(bad: bytes) -> None:
    data = REQUEST.encode()
    good = b"\xa3n\xc3\xa9"
    assert data.count(good) == 1
    error = refusal(Request, data.replace(good, bytes([0xA1 + len(bad)]) + b"n" + bad))
    assert (error.code, error.field) == (Code.INVALID_UTF8, "text")
    nested = Work(request=REQUEST, fingerprint="f", reason="", received_us=0).encode()
    error = refusal(Work, nested.replace(good, bytes([0xA1 + len(bad)]) + b"n" + bad))
    assert (error.code, error.field) == (Code.INVALID_UTF8, "request.text")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x82\xa1v\x01\xa1\xff\x01", id="in a key"),
        pytest.param(b"\x83\xa1v\x01\xa1z\xa1\xff\xa1z\x01", id="and a duplicate key"),
        pytest.param(b"\x82\xa1z\xa1\xff\xa1v", id="and cut short"),
        pytest.param(b"\x82\xa1v\x01\xa1z" + b"\x91" * 900 + b"\xa1\xff", id="deep inside"),
    ],
)
def test_invalid_utf8_that_cannot_be_placed_names_no_field(data: bytes) -> None:
    error = refusal(Request, data)
    assert (error.code, error.field) == (Code.INVALID_UTF8, None)


INT_PLACES = [
    (example, name, row, put) for example in EXAMPLES for name, row, put in places(example) if row.kind.label == "int"
]


@pytest.mark.parametrize("value", [-1, INT_MAX + 1, 2**64 - 1, -(2**63)])
@pytest.mark.parametrize(
    ("example", "name", "row", "put"),
    INT_PLACES,
    ids=[f"{type(e).__name__}-{n}" for e, n, _, _ in INT_PLACES],
)
def test_an_integer_outside_its_bound(example, name, row, put, value: int) -> None:
    top = raw(example)
    put(top, value)
    error = refusal(type(example), pack(top))
    position = name.removeprefix("request.") in ("start", "end", "length", "base.length") and example is not EXAMPLES[1]
    assert (error.code, error.field) == (Code.BAD_POSITION if position else Code.BAD_TYPE, name)


@pytest.mark.parametrize("op", ["text", "append", "splice"])
def test_a_text_over_its_bound(op: str) -> None:
    limits = Limits(text_bytes=8, record_bytes=4096)
    top = raw(REQUEST) | {"op": op}
    for fits in ("12345678", "éééé", "🙂🙂"):
        assert Request.decode(pack(top | {"text": fits}), limits).text == fits
    for over in ("123456789", "ééééé", "🙂🙂.", "1234567é"):
        error = refusal(Request, pack(top | {"text": over}), limits)
        assert (error.code, error.field) == (Code.TEXT_TOO_LARGE, "text")


def test_a_text_of_exactly_the_default_limit_passes_and_one_byte_more_does_not() -> None:
    most = Limits().text_bytes
    request = Request(request_id="r", tokenizer="t", op=Op.TEXT, text="x" * most)
    assert Request.decode(request.encode()) == request
    error = refusal(
        Request,
        pack(
            {
                "v": 1,
                "request_id": "r",
                "tokenizer": "t",
                "session_id": "",
                "op": "text",
                "text": "x" * (most + 1),
            }
        ),
    )
    assert (error.code, error.field) == (Code.TEXT_TOO_LARGE, "text")


def test_a_record_over_its_bound() -> None:
    limits = Limits(record_bytes=1024, text_bytes=1024)
    error = refusal(Request, bytes(1025), limits)
    assert (error.code, error.field) == (Code.TEXT_TOO_LARGE, None)
    with pytest.raises(ProtocolError) as caught:
        Request(request_id="r", tokenizer="t", op=Op.TEXT, text="x" * 1000).encode(limits)
    assert caught.value.code is Code.TEXT_TOO_LARGE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("request_id", ""),
        ("request_id", b""),
        ("request_id", "x" * 65),
        ("request_id", b"x" * 65),
        ("request_id", "é" * 33),
        ("tenant", "x" * 65),
        ("tenant", "a\0b"),
        ("session_id", "x" * 129),
        ("session_id", "\0"),
        ("new_session", "x" * 129),
        ("new_session", "a\0"),
        ("new_session", ""),
        ("tokenizer", ""),
        ("tokenizer", "x" * 129),
        ("op", "TEXT"),
        ("op", ""),
        ("want", "all"),
    ],
)
def test_a_value_outside_its_bound_is_bad_type(field: str, value: object) -> None:
    error = refusal(Request, pack(raw(REQUEST) | {field: value}))
    assert (error.code, error.field) == (Code.BAD_TYPE, field)


def test_errors_never_quote_what_a_field_holds() -> None:
    quoted = "QUOTED"
    for name, row, put in places(REQUEST):
        if row.kind.bound(Limits()).endswith("MiB"):
            continue
        for value in (quoted * 60, [quoted], {quoted: quoted}):
            top = raw(REQUEST)
            put(top, value)
            error = refusal(Request, pack(top))
            assert quoted not in str(error) + repr(error), name
    assert "acme" not in repr(REQUEST)
    assert "né" not in repr(REQUEST)


def test_an_error_survives_pickling() -> None:
    error = refusal(Request, b"")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (copy.code, copy.message, copy.field, str(copy)) == (error.code, error.message, None, str(error))


@given(st.binary(max_size=64))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    for kind in (Request, Reply, Work, Adopt):
        assert isinstance(refusal(kind, data), ProtocolError)


@given(st.data())
def test_a_damaged_record_decodes_or_is_refused(data: st.DataObject) -> None:
    example = data.draw(st.sampled_from(EXAMPLES))
    record = bytearray(example.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = type(example).decode(bytes(record))
    except ProtocolError:
        return
    assert type(example).decode(message.encode()) == message


@pytest.mark.parametrize("kind", ["absent", None, "other", 1, b"work", ["work"], {}])
def test_a_work_record_of_an_unknown_kind(kind: object) -> None:
    top = raw(EXAMPLES[2])
    if kind == "absent":
        del top["kind"]
    else:
        top["kind"] = kind
    with pytest.raises(ProtocolError) as caught:
        decode_work_record(pack(top))
    assert (caught.value.code, caught.value.field) == (Code.BAD_TYPE, "kind")


def test_the_records_of_a_worker_topic_are_told_apart() -> None:
    records = [example for example in EXAMPLES if isinstance(example, WorkRecord)]
    assert {type(record) for record in records} == {Work, Adopt, Drop}
    for record in records:
        assert decode_work_record(record.encode()) == record
        for other in {Work, Adopt, Drop} - {type(record)}:
            assert refusal(other, record.encode()).field == "kind"
