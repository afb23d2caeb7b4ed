"""Round trips of every message, and the rules of replies, dead letters and limits."""

from __future__ import annotations

import dataclasses
from enum import StrEnum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire_examples import EXAMPLES, IDS, SAMPLE, raw, without_defaults

from schemas import kinds
from schemas.codes import Code, Status
from schemas.deadletter import DeadLetter
from schemas.errors import ProtocolError
from schemas.limits import DEFAULT_LIMITS, INT_MAX, Limits
from schemas.message import Message, Nested, Record
from schemas.reply import Engine, Reply, Route, clip
from schemas.request import Op, Request
from schemas.sample import Finding
from schemas.work import Served

BIN_MAX = 64  # Long binaries and texts add time, not cases.


def _text(kind: kinds.Str) -> st.SearchStrategy[str]:
    most = min(getattr(DEFAULT_LIMITS, kind.limit), BIN_MAX)
    banned = "\0" if kind.key else ""
    letters = st.characters(exclude_categories=("Cs",), exclude_characters=banned)
    ascii_only = st.characters(codec="ascii", exclude_characters=banned)
    text = st.text(letters, min_size=kind.least, max_size=most // 4)
    return text | st.text(ascii_only, min_size=kind.least, max_size=most)


def values(kind: kinds.Kind) -> st.SearchStrategy[object]:
    """Values that `kind` accepts, edges included."""
    match kind:
        case kinds.Int():
            return st.integers(0, INT_MAX) | st.sampled_from([0, 127, 128, 2**32, INT_MAX])
        case kinds.Bool():
            return st.booleans()
        case kinds.Fraction():
            return st.floats(0, 1)
        case kinds.Str():
            return _text(kind)
        case kinds.Bin():
            return st.binary(max_size=BIN_MAX // kind.unit).map(lambda data: data * kind.unit)
        case kinds.StrOrBin():
            return st.text(st.characters(codec="utf-8"), min_size=1, max_size=16) | st.binary(min_size=1, max_size=64)
        case kinds.Choice():
            return st.sampled_from(kind.enum)
        case kinds.MapOf():
            return st.dictionaries(_text(kind.keys), values(kind.kind), max_size=4)
        case kinds.ListOf():
            return st.lists(values(kind.kind), max_size=4).map(tuple)
        case kinds.Pair():
            return st.tuples(values(kind.first), values(kind.second))
        case Nested():
            return messages(kind.message)
    raise AssertionError(kind)


@st.composite
def messages(draw: st.DrawFn, kind: type[Message]) -> Message:
    """Messages with every field drawn freely; those that break a rule over several fields are mended."""
    drawn = {}
    for row in kind.FIELDS:
        strategy = values(row.kind)
        drawn[row.name] = draw(strategy if row.needed == "yes" else st.none() | strategy)
    given_fields = {name: value for name, value in drawn.items() if value is not None}
    if kind is Request:
        given_fields |= _mend_request(given_fields)
    if kind is Reply:
        given_fields |= _mend_reply(given_fields)
    if kind is Finding and given_fields.get("redacted"):
        bare = dataclasses.replace(given_fields["sample"], text=b"", ids=b"", offsets=None, restarts=None)
        given_fields["sample"] = bare
    return kind(**given_fields)


def _mend_request(drawn: dict[str, object]) -> dict[str, object]:
    mended: dict[str, object] = {"text": drawn.get("text", "x")}
    base = drawn.get("base")
    needed = ("base", "start", "end", "length", "new_session")
    if base is None or not drawn["session_id"] or any(name not in drawn for name in needed):
        return mended | {"op": Op.TEXT}
    length = base.length
    start, end = sorted((drawn["start"] % (length + 1), drawn["end"] % (length + 1)))
    mended |= {"start": start, "end": end, "length": drawn["length"] % (length + 1)}
    return mended | ({"op": Op.CLOSE} if drawn["new_session"] == drawn["session_id"] else {})


def _mend_reply(drawn: dict[str, object]) -> dict[str, object]:
    code = drawn.get("code")
    ids = drawn.get("ids", b"")
    mended: dict[str, object] = {"status": code.status if code else Status.OK}
    keep_left, keep_right = drawn.get("keep_left", 0) // 2, drawn.get("keep_right", 0) // 4
    mended |= {
        "keep_left": keep_left,
        "keep_right": keep_right,
        "total": keep_left + len(ids) // 4 + keep_right,
    }
    return mended | ({"offsets": ids * 2} if "offsets" in drawn else {})


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_round_trip(example: Record, data: st.DataObject) -> None:
    message = data.draw(messages(type(example)))
    assert isinstance(message, Record)
    encoded = message.encode()
    decoded = type(example).decode(encoded)
    assert decoded == message
    assert decoded.encode() == encoded


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_examples_round_trip_and_set_every_field(example: Record) -> None:
    assert type(example).decode(example.encode()) == example
    assert not hasattr(example, "__dict__")
    assert all(getattr(example, row.name) is not None for row in example.FIELDS)


@pytest.mark.parametrize("kind", [*map(type, EXAMPLES), Served], ids=lambda kind: kind.__name__)
def test_tables_and_dataclasses_agree(kind: type[Message]) -> None:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    assert {row.name for row in kind.FIELDS} == set(fields)
    assert len(kind.FIELDS) == len(fields)


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_the_wire_needs_what_the_constructor_needs(example: Record) -> None:
    needed = {row.name for row in example.FIELDS if row.needed == "yes"}
    # A one-off has an empty session id, which Python callers may leave out and the wire may not.
    assert needed - {"session_id"} == set(without_defaults(example)) - {"session_id"}


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_writers_check_what_readers_check(example: Record) -> None:
    for row in example.FIELDS:
        with pytest.raises(ProtocolError) as caught:
            dataclasses.replace(example, **{row.name: object()}).encode()
        assert (caught.value.code, caught.value.field) == (Code.BAD_TYPE, row.name)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536])
def test_a_record_in_pieces_is_the_record(size: int) -> None:
    text, ids = b"t" * size, b"idid" * size
    whole = dataclasses.replace(SAMPLE, text=text, ids=ids)
    head = dataclasses.replace(SAMPLE, text=b"", ids=b"")
    before, between, behind = head.encode_around({"text": len(text), "ids": len(ids)})
    assert b"".join((before, text, between, ids, behind)) == whole.encode()


def test_a_record_in_pieces_has_the_same_bounds() -> None:
    with pytest.raises(ProtocolError) as caught:
        SAMPLE.encode_around({"text": DEFAULT_LIMITS.record_bytes})
    assert caught.value.code == Code.TEXT_TOO_LARGE
    with pytest.raises(ProtocolError) as caught:
        SAMPLE.encode_around({"text": 1 << 32})
    assert caught.value.code == Code.TEXT_TOO_LARGE
    with pytest.raises(ProtocolError) as caught:
        dataclasses.replace(SAMPLE, certificate="\ud800").encode_around({"text": 1})
    assert (caught.value.code, caught.value.field) == (Code.INVALID_UTF8, "certificate")


def test_a_message_without_a_needed_value_is_not_written() -> None:
    with pytest.raises(ProtocolError) as caught:
        Request(request_id=None, tokenizer="t", op=Op.TEXT, text="").encode()
    assert caught.value.field == "request_id"


def test_absent_values_are_left_out_and_defaults_are_written() -> None:
    top = raw(Request(request_id="r", tokenizer="t", op=Op.TEXT, text=""))
    names = "v request_id tenant session_id tokenizer add_special_tokens op text want offsets"
    assert list(top) == names.split()
    assert raw(Reply(request_id="r", status=Status.OK))["keep_left"] == 0


@pytest.mark.parametrize("code", Code)
def test_a_failure_follows_its_code(code: Code) -> None:
    reply = Reply.failure("r", code, "why" * 1000, tenant="t", session_id="s", revision=3, length=4, epoch=5)
    assert Reply.decode(reply.encode()) == reply
    assert (reply.status, reply.retriable, reply.code) == (code.status, code.retriable, code)
    assert len(reply.message) == DEFAULT_LIMITS.message_bytes
    assert code.meaning.endswith(".")
    assert code.advice.endswith(".")


def test_every_status_but_ok_has_a_code() -> None:
    assert {code.status for code in Code} == set(Status) - {Status.OK}
    assert isinstance(Code("expired"), StrEnum)
    assert f"{Code.EXPIRED}" == "expired"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"status": Status.ERROR}, "code"),
        ({"status": Status.OK, "code": Code.INTERNAL}, "code"),
        ({"status": Status.ERROR, "code": Code.EXPIRED}, "code"),
        ({"status": Status.OK, "total": 1}, "total"),
        ({"status": Status.OK, "ids": bytes(4), "keep_left": 1, "keep_right": 1, "total": 2}, "total"),
        ({"status": Status.OK, "ids": bytes(5)}, "ids"),
        ({"status": Status.OK, "ids": bytes(4), "total": 1, "offsets": b""}, "offsets"),
        ({"status": Status.OK, "offsets": bytes(4)}, "offsets"),
        ({"status": Status.OK, "message": "x" * 1025}, "message"),
        ({"status": Status.OK, "timings": {"": 1}}, "timings (a key)"),
        ({"status": Status.OK, "timings": {"a": -1}}, "timings.*"),
        ({"status": Status.OK, "timings": {str(n): 1 for n in range(65)}}, "timings"),
    ],
)
def test_replies_that_contradict_themselves_are_not_written(fields: dict[str, object], field: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        Reply(request_id="r", **fields).encode()
    assert (caught.value.code, caught.value.field) == (Code.BAD_TYPE, field)


def test_two_replies_do_not_share_their_timings() -> None:
    one, two = (Reply.decode(Reply(request_id="r", status=Status.OK).encode()) for _ in range(2))
    one.timings["a"] = 1
    assert two.timings == {}


@given(st.text(st.characters()), st.integers(0, 40))
def test_clip_fits_and_is_valid(text: str, most: int) -> None:
    clipped = clip(text, most)
    assert len(clipped.encode()) <= most
    if most >= 40 and len(text) <= 10 and not any("\ud800" <= c <= "\udfff" for c in text):
        assert clipped == text


def _dead(**fields: object) -> DeadLetter:
    required = {"topic": "t", "partition": 0, "offset": 0, "code": Code.INTERNAL, "error": "e", "attempt": 3}
    return DeadLetter(**(required | {"time_ms": 0, "worker": "w", "value": b"v"} | fields))


def test_a_dead_letter_that_fits_is_not_touched() -> None:
    letter = _dead(key=b"k" * 1024, headers=(("a", bytes(8192)),) * 64)
    assert letter.fit() == letter


@pytest.mark.parametrize(
    "fields",
    [
        {"value": bytes(70_000)},
        {"key": bytes(1025)},
        {"headers": (("a", b"b"),) * 65},
        {"headers": (("a", bytes(8000)),) * 64},
        {"headers": (("a" * 257, b"b"),)},
        {"headers": (("a", bytes(8193)),)},
        {"value": bytes(70_000), "headers": (("a", bytes(8000)),) * 64},
    ],
)
def test_any_dead_letter_can_be_made_to_fit(fields: dict[str, object]) -> None:
    limits = Limits(record_bytes=65_536, text_bytes=1)
    letter = _dead(error="\ud800" + "é" * 2000, **fields).fit(limits)
    assert letter.clipped
    assert DeadLetter.decode(letter.encode(limits), limits) == letter


@pytest.mark.parametrize(
    "change",
    [
        {"text_bytes": 0},
        {"nesting": -1},
        {"item_count": True},
        {"text_bytes": 2**40},
        {"entry_count": 257},
        {"header_count": 256},
    ],
)
def test_limits_that_make_no_sense_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        Limits(**change)


def test_every_kind_names_a_limit_that_exists() -> None:
    for example in EXAMPLES:
        for row in example.FIELDS:
            assert isinstance(row.kind.bound(DEFAULT_LIMITS), str)


def test_a_route_says_which_engine_ran() -> None:
    engines = [Engine.NATIVE, Engine.NATIVE, Engine.REFERENCE, Engine.REFERENCE, Engine.GPU]
    assert [route.engine for route in Route] == engines


@pytest.mark.parametrize("kept", [{"text": b"x"}, {"ids": bytes(4)}, {"offsets": bytes(8)}, {"restarts": b"\x01"}])
def test_a_redacted_finding_holds_no_text(kept: dict[str, bytes]) -> None:
    (finding,) = (example for example in EXAMPLES if isinstance(example, Finding))
    bare = dataclasses.replace(finding.sample, text=b"", ids=b"", offsets=None, restarts=None)
    assert dataclasses.replace(finding, sample=bare, redacted=True).encode()
    leaking = dataclasses.replace(finding, sample=dataclasses.replace(bare, **kept), redacted=True)
    with pytest.raises(ProtocolError, match="redacted"):
        leaking.encode()
