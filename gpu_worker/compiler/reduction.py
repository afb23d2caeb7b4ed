"""A machine made small: fewer states, labels and classes, with the same pieces of every text."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gpu_worker.compiler.machine import START_STATE, Machine

_Ints = npt.NDArray[np.integer]


def reduce(machine: Machine) -> Machine:
    """The same machine with fewer states, labels and classes, in which every state does something with every label.

    A state never meets labels that contradict what it has read. What it would do there is free, and is chosen so that
    states, and then labels, come to do the same.
    """
    return _merge_classes(_merge_labels(_fill(_merge_states(machine))))


# States


def _merge_states(machine: Machine) -> Machine:
    """Merge states two by two where what they do never differs, nor what follows from it."""
    group: _Ints = np.arange(len(machine.starts))
    for one, other in itertools.combinations(range(len(group)), 2):
        if group[one] != group[other]:
            merged = _merged(machine, group, one, other)
            group = group if merged is None else merged
    _, firsts, number = np.unique(group, return_index=True, return_inverse=True)
    starts = np.full((len(firsts), machine.starts.shape[1]), -1, dtype=np.int8)
    following = np.full(starts.shape, -1, dtype=np.int32)
    for state, merged_state in enumerate(number):
        met = machine.starts[state] >= 0
        starts[merged_state, met] = machine.starts[state, met]
        following[merged_state, met] = number[machine.following[state, met]]
    return replace(machine, starts=starts, following=following)


def _merged(machine: Machine, group: _Ints, one: int, other: int) -> _Ints | None:
    """The groups of states after merging two, and all that this entails; None where it cannot be. The group of a state
    is its smallest one, so that `START_STATE` stays first."""
    group = group.copy()
    pending = [(one, other)]
    while pending:
        low, high = sorted(int(group[state]) for state in pending.pop())
        if low == high:
            continue
        group[group == high] = low
        members = np.flatnonzero(group == low)
        starts, following = machine.starts[members], machine.following[members]
        met = starts >= 0
        if ((starts == 0).any(axis=0) & (starts == 1).any(axis=0)).any():
            return None
        for label in np.flatnonzero(met.sum(axis=0) > 1):
            first, *others = following[met[:, label], label].tolist()
            pending += [(first, state) for state in others if group[state] != group[first]]
    return group


def _fill(machine: Machine) -> Machine:
    """Let states do with a label that they never meet what most others do with it."""
    starts, following = machine.starts.copy(), machine.following.copy()
    for label in range(starts.shape[1]):
        met = starts[:, label] >= 0
        pairs = np.stack([starts[met, label], following[met, label]], axis=1)
        common = np.array([0, START_STATE])
        if len(pairs):
            kinds, counts = np.unique(pairs, axis=0, return_counts=True)
            common = kinds[counts.argmax()]
        starts[~met, label], following[~met, label] = common
    return replace(machine, starts=starts, following=following)


# Labels and classes


def _merge_labels(machine: Machine) -> Machine:
    """Make one of labels that states treat alike, and that give alike labels to the characters before them (Moore)."""
    _, group = np.unique(np.concatenate([machine.starts, machine.following]).T, axis=0, return_inverse=True)
    group = group.reshape(-1)
    while True:
        signature = np.column_stack([group, group[machine.back]])
        _, finer = np.unique(signature, axis=0, return_inverse=True)
        finer = finer.reshape(-1)
        if finer.max() == group.max():
            break
        group = finer
    firsts = _firsts(group)
    number = np.empty(len(firsts), dtype=np.int32)
    number[group[firsts]] = np.arange(len(firsts))
    return replace(
        machine,
        back=number[group[machine.back[firsts]]],
        starts=machine.starts[:, firsts],
        following=machine.following[:, firsts],
    )


def _firsts(group: _Ints) -> _Ints:
    """The first member of each group, in their order; that of `END` is the first of all."""
    _, firsts = np.unique(group, return_index=True)
    return np.sort(firsts)


def _merge_classes(machine: Machine) -> Machine:
    """Make one of classes that always give the same label."""
    columns, number = np.unique(machine.back, axis=1, return_inverse=True)
    return replace(
        machine, classes=number.reshape(-1).astype(np.uint8)[machine.classes], back=np.ascontiguousarray(columns)
    )
