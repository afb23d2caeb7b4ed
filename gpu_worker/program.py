"""A tokenizer as the kernels see it: the tables of its pre-tokenizer, its model and its added tokens."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpu_worker.compiler import added, characters, machine, reduction, scans, vocabulary
from gpu_worker.compiler.added import AddedTokens
from gpu_worker.compiler.scans import Scans
from gpu_worker.compiler.vocabulary import Vocabulary
from gpu_worker.encoder import UnsupportedError
from toksplice import Tokenizer
from toksplice.program import program
from toksplice.structure import NotUnderstoodError


@dataclass(frozen=True, slots=True)
class Program:
    """`block_of`, `class_of`: what `gpu_worker.compiler.characters` has of each code point."""

    fingerprint: str
    block_of: npt.NDArray[np.uint16]
    class_of: npt.NDArray[np.uint8]
    scans: Scans
    vocabulary: Vocabulary
    added: AddedTokens


def compile_for(tokenizer: Tokenizer) -> Program:
    """The program of a tokenizer; raises `UnsupportedError` with the first thing that the kernels cannot serve. Takes a
    second or two."""
    config = json.loads(tokenizer.reference.config_json)
    try:
        facts = program(config)
    except NotUnderstoodError as error:
        raise UnsupportedError(str(error)) from error
    if facts.kind != "bytes":
        raise UnsupportedError("a model without a pre-tokenizer that splits")
    small = reduction.reduce(machine.build(facts.levels))
    block_of, class_of = characters.tables(small.classes, facts.normal_form)
    return Program(
        fingerprint=tokenizer.fingerprint,
        block_of=block_of,
        class_of=class_of,
        scans=scans.tables(small),
        vocabulary=vocabulary.build(config["model"], tokenizer.reference.piece_ids),
        added=added.build(facts.added, functools.partial(characters.is_inert, form=facts.normal_form)),
    )
