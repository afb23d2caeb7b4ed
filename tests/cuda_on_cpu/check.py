"""Compares the kernels, run on the CPU, with the reference: long runs that the tests have no time for.

    python -m tests.cuda_on_cpu.check --tokenizer FILE --strings 100000 --exhaustive 100000 --text FILE --schedule all

Every text that the kernels answer must have the reference's ids, byte positions and pieces; the others are counted by
the reason. Ends with 1 when an answer is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpu_worker.chain import Chain
from gpu_worker.compiler import machine, reduction
from gpu_worker.device import Device
from gpu_worker.encoder import Encoding, Refusal
from gpu_worker.program import compile_for
from toksplice import Tokenizer, load
from toksplice.convert.document import byte_letters
from toksplice.program import program

from .device import CpuDevice
from .emulator import Schedule
from .oracle import Oracle, Wrong
from .strings import Strings

#: Texts of a launch.
BATCH = 500
#: A real text is cut into pieces of this many characters at most, and those that are refused in halves, down to the
#: least.
CHUNK_CHARS = 60_000
CHUNK_CHARS_LEAST = 200
REPORT_EVERY_S = 30


@dataclass
class Tally:
    """What was compared so far."""

    texts: int = 0
    text_bytes: int = 0
    tokens: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refused_bytes: int = 0
    wrong: list[Wrong] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "texts": self.texts,
            "bytes": self.text_bytes,
            "tokens": self.tokens,
            "refused": dict(self.refused),
            "refused_bytes": self.refused_bytes,
            "wrong": len(self.wrong),
        }


class Checker:
    """One tokenizer on a device, beside the reference."""

    def __init__(self, tokenizer: Tokenizer, device: Device) -> None:
        self.chain = Chain(device, compile_for(tokenizer))
        self.oracle = Oracle(tokenizer)

    def check(self, texts: Sequence[str], tally: Tally) -> list[tuple[str, Refusal]]:
        """Encode and compare a batch; the texts that were refused."""
        answers = list(zip(texts, self.chain.encode([text.encode() for text in texts]), strict=True))
        done = [(text, answer) for text, answer in answers if isinstance(answer, Encoding)]
        tally.wrong += self.oracle.faults([text for text, _ in done], [answer for _, answer in done])
        tally.texts += len(done)
        tally.text_bytes += sum(len(text.encode()) for text, _ in done)
        tally.tokens += sum(len(answer.ids) for _, answer in done)
        return [(text, answer) for text, answer in answers if isinstance(answer, Refusal)]

    def strings(self, texts: Iterator[str], tally: Tally) -> None:
        for batch in _batched(texts, BATCH):
            for _, why in self.check(batch, tally):
                tally.refused[why] += 1
            _report(tally)

    def real(self, text: str, tally: Tally) -> None:
        """A long text in parts; of a part that is refused, what can be encoded of it."""
        pending = [text[at : at + CHUNK_CHARS] for at in range(0, len(text), CHUNK_CHARS)][::-1]
        while pending:
            batch = [pending.pop() for _ in range(min(4, len(pending)))]
            for part, why in self.check(batch, tally):
                if len(part) > CHUNK_CHARS_LEAST:
                    pending += [part[: len(part) // 2], part[len(part) // 2 :]]
                else:
                    tally.refused[why] += 1
                    tally.refused_bytes += len(part.encode())
            _report(tally)


def _batched(texts: Iterator[str], size: int) -> Iterator[tuple[str, ...]]:
    while batch := tuple(itertools.islice(texts, size)):
        yield batch


_reported = time.monotonic()


def _report(tally: Tally) -> None:
    global _reported
    if time.monotonic() - _reported > REPORT_EVERY_S:
        _reported = time.monotonic()
        sys.stderr.write(json.dumps(tally.as_dict()) + "\n")


def _spellings(config: dict[str, Any]) -> list[str]:
    """The tokens of a vocabulary that are whole characters, as text."""
    byte_of = {ord(letter): byte for byte, letter in byte_letters().items()}
    found = []
    for spelling in config["model"]["vocab"]:
        if all(ord(letter) in byte_of for letter in spelling):
            text = spelling.translate(byte_of).encode("latin-1").decode(errors="ignore")
            found += [text] if text else []
    return found


def strings_for(tokenizer: Tokenizer, seed: int) -> Iterator[str]:
    """Adversarial texts for a tokenizer, without end."""
    config = json.loads(tokenizer.reference.config_json)
    added = [entry["content"] for entry in config["added_tokens"]]
    return iter(Strings(seed, _spellings(config), added))


def exhaustive(tokenizer: Tokenizer, count: int) -> Iterator[str]:
    """The first texts over one character of each class that the pre-tokenizer tells apart, the shortest first."""
    levels = program(json.loads(tokenizer.reference.config_json)).levels
    classes = reduction.reduce(machine.build(levels)).classes
    points = [int(np.flatnonzero(classes == number)[-1]) for number in np.unique(classes)]
    first = {int(classes[point]): point for point in range(0x7F, 0x1F, -1)}
    alphabet = [chr(first.get(number, point)) for number, point in enumerate(points)]
    texts = ("".join(chars) for length in itertools.count(1) for chars in itertools.product(alphabet, repeat=length))
    return itertools.islice(texts, count)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 1 when an answer is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.cuda_on_cpu.check", description=__doc__.split("\n")[0])
    parser.add_argument("--tokenizer", required=True, type=Path, help="a tokenizer.json")
    parser.add_argument("--strings", type=int, default=0, help="how many adversarial texts, for each schedule")
    parser.add_argument("--exhaustive", type=int, default=0, help="how many texts over the pre-tokenizer's classes")
    parser.add_argument("--text", type=Path, action="append", default=[], help="a file of real text; may be repeated")
    parser.add_argument("--schedule", default="all", choices=["all", *(s.name.lower() for s in Schedule)])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)

    tokenizer = load(options.tokenizer)
    device = CpuDevice()
    checker = Checker(tokenizer, device)
    wrong = 0
    for schedule in Schedule:
        if options.schedule not in ("all", schedule.name.lower()):
            continue
        device.schedule = schedule
        seed = options.seed + int(schedule)
        tallies = {"strings": Tally(), "exhaustive": Tally(), "text": Tally()}
        checker.strings(itertools.islice(strings_for(tokenizer, seed), options.strings), tallies["strings"])
        checker.strings(exhaustive(tokenizer, options.exhaustive), tallies["exhaustive"])
        for path in options.text:
            checker.real(path.read_text(encoding="utf-8", errors="ignore"), tallies["text"])
        for kind, tally in tallies.items():
            if not tally.texts and not tally.refused:
                continue
            wrong += len(tally.wrong)
            line = {"tokenizer": tokenizer.name, "schedule": schedule.name.lower(), "kind": kind, **tally.as_dict()}
            sys.stdout.write(json.dumps(line) + "\n")
            for fault in tally.wrong[:5]:
                sys.stdout.write(f"    {fault}\n")
            sys.stdout.flush()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
