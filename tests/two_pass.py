"""Runs the machines of gpu_worker.compiler plainly: once backwards for the labels, once forwards for the pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from gpu_worker.compiler.machine import END, START_STATE, Machine


def pieces(machine: Machine, text: str) -> list[int]:
    """Where pieces begin, in characters."""
    classes = [int(machine.classes[ord(char)]) for char in text]
    labels: list[int] = []
    label = END
    for number in reversed(classes):
        label = int(machine.back[label, number])
        labels.append(label)
    found: list[int] = []
    state = START_STATE
    for at, label in enumerate(reversed(labels)):
        assert machine.starts[state, label] >= 0, "a state met a label that it never meets"
        if machine.starts[state, label]:
            found.append(at)
        state = int(machine.following[state, label])
    return found


def representatives(machine: Machine) -> list[str]:
    """A character of each class, printable ones where there are any."""
    found = []
    for number in range(machine.back.shape[1]):
        points = [int(point) for point in np.flatnonzero(machine.classes == number) if not 0xD800 <= point < 0xE000]
        found.append(chr(next((point for point in points if chr(point).isprintable()), points[0])))
    return found


def short_texts(alphabet: list[str], most: int) -> Iterator[str]:
    """Every text over an alphabet, from the shortest on, as far as `most` texts allow all of a length."""
    total = 0
    for length in itertools.count(1):
        total += len(alphabet) ** length
        if total > most:
            return
        yield from map("".join, itertools.product(alphabet, repeat=length))
