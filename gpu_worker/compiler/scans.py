"""The machine's two readings as scans of an associative operation: the composition of functions.

Backwards, a stretch of text is a function from the label behind it to its first character's label. Few functions occur,
so each has a number, and a table composes two of them. Forwards, a stretch is a function from the state before it to
the one behind it, and is kept as it is: the image of each state in four bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpu_worker.compiler.machine import END, Machine
from gpu_worker.encoder import UnsupportedError

#: What the kernels have room for.
MAX_FUNCTIONS = 0xFF
MAX_LABELS = 0xFF
MAX_STATES = 16
#: The number of the function that leaves every label as it is, and of the one that gives `END` for each.
IDENTITY = 0
TO_END = 1

_Function = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scans:
    """`of_class`: the function of each class, u8, and behind them that of a separator, which is `TO_END`. `compose[g *
    functions + f]`: g after f, u8. `apply[f * labels + l]`: the label that f makes of l, u8. `is_constant`: whether the
    function gives one label for all, u8.

    `image`: by label the function of states, u64 with four bits for each. `starts[s * labels + l]`: whether a piece
    begins at a label in a state, u8.
    """

    functions: int
    labels: int
    states: int
    of_class: npt.NDArray[np.uint8]
    compose: npt.NDArray[np.uint8]
    apply: npt.NDArray[np.uint8]
    is_constant: npt.NDArray[np.uint8]
    image: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.uint8]


def tables(machine: Machine) -> Scans:
    """The tables of a reduced machine; raises `UnsupportedError` when the kernels have no room for them."""
    labels = len(machine.back)
    states = len(machine.starts)
    if labels > MAX_LABELS or states > MAX_STATES:
        raise UnsupportedError(f"the pre-tokenizer needs {labels} labels and {states} states")
    of_class = [tuple(column) for column in machine.back.T.tolist()]
    number = _closure(of_class, labels)
    functions = np.array(list(number), dtype=np.uint8)
    compose = np.array([[number[tuple(g[f].tolist())] for f in functions] for g in functions], dtype=np.uint8)
    weights = np.uint64(1) << (np.uint64(4) * np.arange(states, dtype=np.uint64))
    image = (machine.following.astype(np.uint64) * weights[:, None]).sum(axis=0, dtype=np.uint64)
    return Scans(
        functions=len(number),
        labels=labels,
        states=states,
        of_class=np.array([*(number[function] for function in of_class), TO_END], dtype=np.uint8),
        compose=compose.reshape(-1),
        apply=functions.reshape(-1),
        is_constant=(functions == functions[:, :1]).all(axis=1).astype(np.uint8),
        image=image,
        starts=machine.starts.astype(np.uint8).reshape(-1),
    )


def _closure(generators: Sequence[_Function], labels: int) -> dict[_Function, int]:
    """All that composing the generators gives, numbered: closed under composition, since every product of two of them
    is a product of generators and comes up when these are put in front one by one."""
    number = {tuple(range(labels)): IDENTITY, (END,) * labels: TO_END}
    pending = list(number)
    every = [*dict.fromkeys(generators), (END,) * labels]
    for function in pending:
        for generator in every:
            product = tuple(generator[label] for label in function)
            if product not in number:
                if len(number) >= MAX_FUNCTIONS:
                    raise UnsupportedError("the pre-tokenizer makes too many functions of labels")
                number[product] = len(number)
                pending.append(product)
    return number
