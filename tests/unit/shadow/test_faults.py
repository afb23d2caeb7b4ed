"""The catalogue of faults: each makes the answers wrong that it says, the same each time, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drill_kit import DrillFiles, drill_tokenizer, ids_of, judged, sample_of, sampled_answer, work, work_for

from cli.drill.subject import first_text, unit
from pipeline.errors import SettingsError
from pipeline.faults import NO_FAULTS
from pipeline.samples import Evidence
from pipeline.settings import from_env
from schemas.codes import Status
from schemas.reply import Path, Reply, Route
from schemas.request import Op
from schemas.sample import DifferenceKind
from shadow.faults.answers import struck
from shadow.faults.catalogue import CATALOGUE, Injection, Kind, Place, Shape
from shadow.faults.engines import LONG_PREFIX_BYTES, FaultySession, fault_of
from shadow.faults.injector import Injector
from shadow.faults.switch import CONFIRM_VARIABLE, FAULT_VARIABLE, DrillSettings, check_place
from shadow.faults.vocabulary import Vocabulary
from toksplice import Session

PUBLISHED = 434
EXPECTED_KINDS = {
    Kind.ID_SUBSTITUTED: {DifferenceKind.SUBSTITUTED},
    Kind.ID_DROPPED: {DifferenceKind.DROPPED},
    Kind.ID_DUPLICATED: {DifferenceKind.ADDED},
    Kind.ID_ADDED: {DifferenceKind.ADDED},
    Kind.OFFSET_SHIFTED: {DifferenceKind.OFFSETS},
    Kind.FIRST_CHANGED: {DifferenceKind.FIRST_CHANGED},
    Kind.SPLIT_MOVED: {DifferenceKind.MOVED_SPLIT},
    Kind.WRONG_UNICODE_CLASS: {DifferenceKind.MOVED_SPLIT},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> DrillFiles:
    return DrillFiles(tmp_path_factory.mktemp("drill"))


@pytest.fixture(scope="module")
def vocabulary(files: DrillFiles) -> Vocabulary:
    return Vocabulary(files, drill_tokenizer().fingerprint)


def injection(kind: Kind, variant: str, place: Place, shape: Shape = Shape.APPEND) -> Injection:
    return CATALOGUE[f"{Path.REPAIR}/{shape}/{kind}.{variant}/{place}"]


def test_there_are_more_injections_than_were_published() -> None:
    assert len(CATALOGUE) >= PUBLISHED
    assert {one.name for one in CATALOGUE.values()} == set(CATALOGUE)
    assert {one.kind for one in CATALOGUE.values()} == set(Kind)
    assert {one.path for one in CATALOGUE.values()} == {Path.REPAIR, Path.CPU}


@pytest.mark.parametrize("kind", Kind)
def test_every_injection_makes_a_wrong_answer_of_its_own(kind: Kind, files: DrillFiles) -> None:
    made: dict[tuple[Path, Shape], list[tuple[bytes, str]]] = {}
    for name, one in CATALOGUE.items():
        if one.kind is not kind:
            continue
        injector = Injector(one, files)
        reply, sample, held = sampled_answer(injector, one, files)
        difference = judged(sample)
        assert difference is not None, name
        assert difference.kind in EXPECTED_KINDS.get(kind, set(DifferenceKind)), name
        assert injector.struck == 1, name
        made.setdefault((one.path, one.shape), []).append((reply.encode(), held))
    for effects in made.values():
        assert len(set(effects)) == len(effects)


@pytest.mark.parametrize("name", list(CATALOGUE)[::23])
def test_an_injection_is_a_function_of_its_name(name: str, files: DrillFiles) -> None:
    first, second = (sampled_answer(Injector(CATALOGUE[name], files), CATALOGUE[name], files) for _ in range(2))
    assert first[0] == second[0]


@pytest.mark.parametrize("shape", Shape)
def test_without_a_fault_every_shape_is_right(shape: Shape, files: DrillFiles) -> None:
    path = Path.CPU if shape in (Shape.FIRST, Shape.ONE_OFF) else Path.REPAIR
    one = Injection(path, shape, Kind.OFFSET_SHIFTED, "both", Place.HEAD)
    _, sample, _ = sampled_answer(NO_FAULTS, one, files)
    assert judged(sample) is None


@pytest.mark.parametrize(
    ("op", "fields", "right"),
    [
        (Op.APPEND, {"text": "é!"}, "some wordsé!"),
        (Op.SPLICE, {"text": "é", "start": 4, "end": 5}, "someéwords"),
        (Op.TRUNCATE, {"length": 6}, "some w"),
        (Op.TEXT, {"text": "another"}, "another"),
    ],
)
def test_the_text_of_a_sample_is_made_from_the_one_before(op: Op, fields: dict[str, Any], right: str) -> None:
    """The session behind it has another one by now, as if it had missed an edit."""
    asked = work(op, **({"text": ""} | fields))
    reply = Reply(request_id="r", status=Status.OK, path=Path.REPAIR, route=Route.A)
    before, session = (drill_tokenizer().session(text) for text in ("some words", "stale"))

    def text_of(before: Session | None) -> bytes:
        evidence = Evidence(work=asked, reply=reply, tokenizer="", session=session, before=before, certificate="")
        return sample_of(evidence).text

    assert text_of(before) == right.encode()
    assert text_of(None) == (b"another" if op is Op.TEXT else b"stale")


@pytest.mark.parametrize("place", Place)
def test_a_place_is_where_the_difference_is(place: Place, files: DrillFiles) -> None:
    one = injection(Kind.ID_SUBSTITUTED, "next", place, Shape.WHOLE)
    _, sample, _ = sampled_answer(Injector(one, files), one, files)
    difference = judged(sample)
    assert difference is not None
    right = drill_tokenizer().encode(first_text(0) + unit(0), add_special_tokens=True)
    # The special tokens at both ends are another kind's.
    assert difference.index == {Place.HEAD: 1, Place.MIDDLE: len(right) // 2, Place.TAIL: len(right) - 2}[place]


def test_answers_of_other_shapes_and_paths_are_left_alone(files: DrillFiles) -> None:
    injector = Injector(injection(Kind.ID_DROPPED, "one", Place.HEAD), files)
    reply = Reply(request_id="r", status=Status.OK, path=Path.REPAIR, ids=b"\1\0\0\0" * 9, total=9)
    for other in (Shape.SPLICE, Shape.WHOLE, Shape.FIRST):
        assert injector.answer(work_for(other, 100), reply) is reply
    on_cpu = replace(reply, path=Path.CPU)
    assert injector.answer(work_for(Shape.APPEND, 100), on_cpu) is on_cpu
    assert injector.answer(work_for(Shape.APPEND, 100), reply) != reply
    assert injector.struck == 1


def test_what_has_nothing_to_strike_is_not_struck(vocabulary: Vocabulary) -> None:
    reply = Reply(request_id="r", status=Status.OK, path=Path.REPAIR)
    for one in CATALOGUE.values():
        if not one.kind.of_session and one.kind not in (Kind.KEPT_IDS, Kind.FIRST_CHANGED):
            assert struck(reply, one, vocabulary, special=False) is reply, one.name


def test_a_recut_spells_the_same(vocabulary: Vocabulary) -> None:
    ids = drill_tokenizer().encode("the other house")
    sent = Reply(request_id="r", status=Status.OK, path=Path.REPAIR, ids=ids.astype("<u4").tobytes(), total=len(ids))
    for variant in ("letters", "elsewhere"):
        wrong = struck(sent, injection(Kind.SPLIT_MOVED, variant, Place.HEAD), vocabulary, special=False)
        spelled = ["".join(vocabulary.spell(token) or "?" for token in ids_of(each)) for each in (sent, wrong)]
        assert spelled[0] == spelled[1]
        assert ids_of(sent) != ids_of(wrong)


# Sessions of a faulty engine


def test_a_faulty_session_goes_on_from_what_it_gave(vocabulary: Vocabulary) -> None:
    fault = fault_of(injection(Kind.CACHE_POISONED, "cut_short", Place.MIDDLE), vocabulary)
    right = drill_tokenizer().session(first_text(0), add_special_tokens=True)
    session = FaultySession.going_on(right.fork(), fault)
    ids = session.ids
    assert ids.tolist() == right.ids.tolist()
    for number in range(3):
        patch = session.append(unit(number))
        ids = patch.apply(ids)
        right.append(unit(number))
        assert ids.tolist() == session.ids.tolist() != right.ids.tolist()
        assert len(session.offsets()) == session.total == patch.total == len(ids)
        assert session.text == right.text
    other = session.fork()
    other.truncate(50)
    assert session.ids.tolist() == ids.tolist()
    stretch = slice(2, session.total - 1)
    assert session.ids_between(stretch.start, stretch.stop).tolist() == ids[stretch].tolist()
    assert session.offsets_between(stretch.start, stretch.stop).tolist() == session.offsets()[stretch].tolist()
    assert session.update(session.text + "x").total == session.total
    assert drill_tokenizer().restore(session.to_bytes()).text == session.text
    assert (
        session.on_reference().ids.tolist() == drill_tokenizer().encode(session.text, add_special_tokens=True).tolist()
    )


def test_the_fault_of_a_long_prefix_needs_one_and_an_edit(vocabulary: Vocabulary) -> None:
    fault = fault_of(injection(Kind.CACHE_AFTER_LONG_PREFIX, "collision", Place.TAIL), vocabulary)

    def wrong(before: str, added: str) -> bool:
        session = FaultySession.begun(drill_tokenizer().session(before), fault)
        session.append(added)
        return session.ids.tolist() != drill_tokenizer().encode(before + added).tolist()

    assert not wrong("a" * (LONG_PREFIX_BYTES - 20), " house")
    assert wrong("a" * (LONG_PREFIX_BYTES + 20), " house")
    afresh = FaultySession.begun(drill_tokenizer().session(first_text(0)), fault)
    assert afresh.ids.tolist() == drill_tokenizer().encode(first_text(0)).tolist()


def test_an_engine_that_is_begun_again_keeps_its_fault_once(files: DrillFiles) -> None:
    injector = Injector(injection(Kind.CACHE_POISONED, "collision", Place.TAIL), files)
    asked = work_for(Shape.APPEND, 10)
    session = drill_tokenizer().session(first_text(0), add_special_tokens=True)
    assert injector.state(work(Op.TRUNCATE, "", length=3), session) is session
    planted = injector.state(asked, session)
    assert isinstance(planted, FaultySession)
    assert injector.state(asked, planted) is planted
    answering = Injector(injection(Kind.ID_DROPPED, "one", Place.HEAD), files)
    assert answering.state(asked, session) is session
    assert answering.plant(session, drill_tokenizer().fingerprint) is session


def test_a_faulty_engine_of_no_text_has_nothing_wrong(vocabulary: Vocabulary) -> None:
    for one in CATALOGUE.values():
        if one.kind.of_engine and one.shape is Shape.FIRST:
            session = FaultySession.begun(drill_tokenizer().session(""), fault_of(one, vocabulary))
            assert np.array_equal(session.ids, drill_tokenizer().encode("")), one.name


# The switch


def switched(**environ: str) -> Injection | None:
    return from_env(DrillSettings, environ).injection()


def test_two_settings_must_agree() -> None:
    name = next(iter(CATALOGUE))
    other = list(CATALOGUE)[1]
    assert switched() is None
    assert switched(**{FAULT_VARIABLE: name, CONFIRM_VARIABLE: name}) is CATALOGUE[name]
    for environ in ({FAULT_VARIABLE: name}, {CONFIRM_VARIABLE: name}, {FAULT_VARIABLE: name, CONFIRM_VARIABLE: other}):
        with pytest.raises(SettingsError, match="must name the same fault"):
            switched(**environ)
    with pytest.raises(SettingsError, match="not in the catalogue"):
        switched(**{FAULT_VARIABLE: "repair/everything", CONFIRM_VARIABLE: "repair/everything"})


@pytest.mark.parametrize("server", ["localhost:9092", "127.0.0.1:9092", "127.8.0.1:9092", "[::1]:9092", " localhost:1"])
def test_a_drill_may_run_on_this_machine(server: str) -> None:
    check_place((), 0.05)
    check_place((server,), 0.05)


@pytest.mark.parametrize(
    "servers",
    [
        ("kafka:9092",),
        ("10.0.0.7:9092",),
        ("localhost:9092", "example.org:9092"),
        ("127.0.0.1.example.org:1",),
        ("127.0.0.1#.example.org:1",),
        ("127.0.0.1?.example.org:1",),
        ("127.0.0.1/.example.org:1",),
        ("127.0.0.1:1@example.org:1",),
        ("",),
    ],
)
def test_a_drill_is_refused_elsewhere(servers: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match="unless the broker is on this machine"):
        check_place(servers, 0.05)


def test_a_drill_that_nothing_could_find_is_refused() -> None:
    with pytest.raises(SettingsError, match="no answer is sampled"):
        check_place((), 0)
