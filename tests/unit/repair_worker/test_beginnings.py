"""Sessions of a tenant that begin alike share memory and work, and nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from repair_worker.beginnings import ALIKE_BYTES, KEPT_BYTES, TOKEN_BYTES, Beginnings
from repair_worker.changes import restore
from repair_worker.store import Identity
from tests.families import family, tokenizer_json
from toksplice import Session, load

MIB = 1024 * 1024
PROMPT = "You are a careful engineer. Tools: read(path), write(path, text), run(command).\n" * 2_000
FAMILY = "qwen"


def identity(tenant: str = "t", session_id: str = "s", *, special: bool = False) -> Identity:
    return Identity(tenant, session_id, family(FAMILY).fingerprint, special)


def expected(text: str) -> list[int]:
    return family(FAMILY, engine=False).reference.ids(text).tolist()


def state(text: str) -> bytes:
    return family(FAMILY).session(text).to_bytes()


class Source:
    def names(self) -> tuple[str, ...]:
        return (FAMILY,)

    def resolve(self, name_or_fingerprint: str) -> str:
        return name_or_fingerprint

    def name_of(self, fingerprint_hex: str) -> str:
        return FAMILY

    def get(self, fingerprint_hex: str):  # type: ignore[no-untyped-def]
        return family(FAMILY)


def restored(beginnings: Beginnings, tenant: str, session_id: str, text: str) -> Session:
    return restore(Source(), beginnings, identity(tenant, session_id), state(text))


def test_sessions_that_begin_alike_share_memory_and_have_their_own_tokens() -> None:
    beginnings = Beginnings(64 * MIB)
    sessions = [restored(beginnings, "t", str(n), PROMPT + f"user {n}: hi\n" * n) for n in range(1, 9)]
    alone = family(FAMILY).session(sessions[0].text).size_bytes
    for n, session in enumerate(sessions, 1):
        assert session.ids.tolist() == expected(PROMPT + f"user {n}: hi\n" * n)
        assert session.size_bytes < alone / 3
    sessions[0].splice(10, 20, "CHANGED")
    assert sessions[1].ids.tolist() == expected(sessions[1].text)
    assert len(beginnings) == 1


def test_only_what_differs_is_encoded() -> None:
    tokenizer = family(FAMILY)
    first = tokenizer.session(PROMPT + "one")
    before = first.ids.copy()
    second = tokenizer.session(PROMPT + "two", like=first)
    assert first.fork().update(PROMPT + "two").chars_encoded < 200
    assert second.ids.tolist() == expected(PROMPT + "two")
    assert np.array_equal(first.ids, before)


def test_tenants_and_tokenizers_do_not_share() -> None:
    beginnings = Beginnings(64 * MIB)
    restored(beginnings, "a", "1", PROMPT)
    text = PROMPT.encode()
    assert beginnings.like(identity("a", "2"), text) is not None
    assert beginnings.like(identity("b", "1"), text) is None
    assert beginnings.like(Identity("a", "1", "0" * 64, False), text) is None


def test_special_tokens_are_each_sessions_own() -> None:
    tokenizer = family("llama3")
    plain = tokenizer.session(PROMPT)
    special = tokenizer.session(PROMPT + "x", add_special_tokens=True, like=plain)
    assert special.ids.tolist() == tokenizer.reference.ids(PROMPT + "x", add_special_tokens=True).tolist()
    assert special.total == special.ids.size


@pytest.mark.parametrize("text", ["", "x" * (ALIKE_BYTES - 1), "é" * (ALIKE_BYTES // 2 - 1)])
def test_short_texts_are_not_kept(text: str) -> None:
    beginnings = Beginnings(64 * MIB)
    restored(beginnings, "t", "s", text)
    assert len(beginnings) == 0
    assert beginnings.like(identity(), text.encode()) is None


@pytest.mark.parametrize("shift", range(4))
def test_a_long_beginning_is_cut_at_a_character(shift: int) -> None:
    beginnings = Beginnings(64 * MIB)
    text = "a" * shift + "\U0001f937" * (KEPT_BYTES // 4 + 100)
    session = restored(beginnings, "t", "s", text)
    assert session.ids.tolist() == expected(text)
    kept = beginnings.like(identity(), text.encode())
    assert kept is not None
    assert KEPT_BYTES - 4 < kept.length <= KEPT_BYTES
    assert text.startswith(kept.text)


def test_the_least_recently_used_goes_when_the_bytes_are_spent() -> None:
    texts = [f"{n} " + PROMPT for n in range(6)]
    session = family(FAMILY).session(texts[0])
    weight = session.length + TOKEN_BYTES * session.total
    beginnings = Beginnings(3 * weight + weight // 2)
    for n, text in enumerate(texts[:3]):
        restored(beginnings, "t", str(n), text)
    assert beginnings.like(identity(), texts[0].encode()) is not None
    restored(beginnings, "t", "3", texts[3])
    found = [beginnings.like(identity(), text.encode()) is not None for text in texts]
    assert found == [True, False, True, True, False, False]
    assert 0 < beginnings.bytes_used <= 3 * weight + weight // 2
    nothing = Beginnings(0)
    for text, name in itertools.product(texts[:2], "ab"):
        assert restored(nothing, "t", name, text).text == text
    assert (len(nothing), nothing.bytes_used) == (0, 0)


def test_sessions_of_another_engine_or_of_the_reference_are_not_shared() -> None:
    other, reference = load(tokenizer_json(FAMILY)), family(FAMILY, engine=False)
    for like in (other.session(PROMPT), reference.session(PROMPT)):
        session = family(FAMILY).session(PROMPT + "x", like=like)
        assert session.native
        assert session.ids.tolist() == expected(PROMPT + "x")
    beginnings = Beginnings(64 * MIB)
    beginnings.keep(identity(), reference.session(PROMPT))
    assert len(beginnings) == 0
