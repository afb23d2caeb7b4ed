"""The machine of a pre-tokenizer has the reference's pieces: on every short text over its classes, and on hostile
ones."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from typing import Any

import families
import numpy as np
import pytest
import run_decomposition
import tokenizers
import two_pass
from cuda_on_cpu.strings import Strings

from gpu_worker.compiler import machine, reduction, scans
from gpu_worker.compiler.machine import Machine
from gpu_worker.encoder import UnsupportedError
from toksplice.program import program

#: Every text is compared up to the length at which there are more of them than this.
SHORT_TEXTS = 11_500
HOSTILE_TEXTS = 300

TEKKEN = families.O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
KIMI = r"[\p{Han}]+|" + families.O200K.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]")
MARKS = families.QWEN.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")

_byte_level = families.byte_level()
PRE_TOKENIZERS: dict[str, families.Json] = {
    "gpt2": families.byte_level(use_regex=True),
    "cl100k": families.sequence(families.split(families.CL100K), _byte_level),
    "cl100k, inverted": families.sequence(families.split(families.CL100K, "Removed", invert=True), _byte_level),
    "qwen": families.sequence(families.split(families.QWEN), _byte_level),
    "qwen with marks": families.sequence(families.split(MARKS), _byte_level),
    "o200k": families.sequence(families.split(families.O200K), _byte_level),
    "tekken": families.sequence(families.split(TEKKEN), _byte_level),
    "kimi": families.sequence(families.split(KIMI), _byte_level),
    "deepseek": families.sequence(*map(families.split, families.DEEPSEEK), _byte_level),
    "deepseek llm": families.sequence(*map(families.split, families.DEEPSEEK_LLM), _byte_level),
    "starcoder": families.sequence({"type": "Digits", "individual_digits": True}, families.byte_level(use_regex=True)),
    "gaps": families.sequence(families.split("ab+c|[0-9]{2}"), _byte_level),
    "a match at its own start": families.sequence(families.split("(?:ab)*c"), _byte_level),
    "lazy": families.sequence(families.split(r"a+?b?|\s+?x|."), _byte_level),
}


@functools.cache
def made(name: str) -> tuple[Machine, Machine]:
    """The machine of a pre-tokenizer, as it is composed and reduced."""
    config = families.bpe(PRE_TOKENIZERS[name])
    large = machine.build(program(config).levels)
    return large, reduction.reduce(large)


@functools.cache
def reference(name: str) -> Callable[[str], list[int]]:
    config: dict[str, Any] = families.bpe(PRE_TOKENIZERS[name])
    pre_tokenizer = tokenizers.Tokenizer.from_str(json.dumps(config)).pre_tokenizer
    return lambda text: [start for _, (start, _) in pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_short_text_has_the_references_pieces(name: str) -> None:
    large, small = made(name)
    expected = reference(name)
    texts = list(two_pass.short_texts(two_pass.representatives(small), SHORT_TEXTS))
    assert max(map(len, texts)) >= 3
    for number, text in enumerate(texts):
        assert two_pass.pieces(small, text) == expected(text), ascii(text)
        if number % 16 == 0:
            assert two_pass.pieces(large, text) == expected(text), ascii(text)


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_hostile_texts_have_the_references_pieces(name: str) -> None:
    _, small = made(name)
    expected = reference(name)
    for text in itertools.islice(Strings(7, ["th", "ing", "12", "\n "], []), HOSTILE_TEXTS):
        assert two_pass.pieces(small, text) == expected(text), ascii(text)


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("cl100k", run_decomposition.cl100k),
        ("qwen", functools.partial(run_decomposition.cl100k, digits=1)),
        ("deepseek", run_decomposition.deepseek),
    ],
)
def test_runs_decomposed_by_hand_give_the_same_pieces(name: str, by_hand: Callable[[str], list[int]]) -> None:
    _, small = made(name)
    short = two_pass.short_texts(two_pass.representatives(small), SHORT_TEXTS // 4)
    for text in itertools.chain(short, itertools.islice(Strings(8, ["th", "ing", "12"], []), HOSTILE_TEXTS)):
        assert two_pass.pieces(small, text) == by_hand(text), ascii(text)


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_tables_do_what_the_machine_does(name: str) -> None:
    """Composed by number and by nibbles, in any order, the functions of a text's parts are those of the text."""
    _, small = made(name)
    tables = scans.tables(small)
    compose = tables.compose.reshape(tables.functions, tables.functions)
    apply = tables.apply.reshape(tables.functions, tables.labels)
    for g, f in itertools.product(range(tables.functions), repeat=2):
        assert (apply[compose[g, f]] == apply[g][apply[f]]).all()
    for number, function in enumerate(tables.of_class[:-1]):
        assert (apply[function] == small.back[:, number]).all()
    assert tables.of_class[-1] == scans.TO_END
    assert (tables.is_constant == (apply == apply[:, :1]).all(axis=1)).all()
    for state, label in itertools.product(range(tables.states), range(tables.labels)):
        assert int(tables.image[label]) >> 4 * state & 15 == small.following[state, label]
        assert tables.starts[state * tables.labels + label] == small.starts[state, label]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_reduction_leaves_little(name: str) -> None:
    large, small = made(name)
    assert small.back.shape[0] <= 40
    assert len(small.starts) <= scans.MAX_STATES
    assert small.back.shape[0] < large.back.shape[0]
    assert (small.starts >= 0).all()
    # A separator is behind every label and before every state.
    assert (small.starts[:, machine.END] == 1).all()
    assert (small.following[:, machine.END] == machine.START_STATE).all()


def test_what_is_not_served_is_refused() -> None:
    removing = families.sequence(families.split("[0-9]+", "Removed", invert=True), _byte_level)
    with pytest.raises(UnsupportedError, match="removes text"):
        machine.build(program(families.bpe(removing)).levels)
    digits = {"type": "Digits", "individual_digits": False}
    inside = families.sequence(families.byte_level(use_regex=True), digits)
    with pytest.raises(UnsupportedError, match="inside characters"):
        machine.build(program(families.bpe(inside)).levels)
    counting = families.sequence(families.split("[0-9]{1,40}"), _byte_level)
    with pytest.raises(UnsupportedError, match="states"):
        scans.tables(reduction.reduce(machine.build(program(families.bpe(counting)).levels)))


def test_surrogates_have_no_class_of_their_own() -> None:
    _, small = made("cl100k")
    assert set(np.unique(small.classes[0xD800:0xE000])) == {small.classes[ord("a")]}
