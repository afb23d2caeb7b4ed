"""The wider collection of counterexamples that may lie beside the project; skips where it does not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "cases"
#: Names of the collection -> names of `toksplice.sources`.
NAMES = {"gptoss": "gpt_oss"}


@dataclass(frozen=True, slots=True)
class WideCase:
    tokenizer: str
    old: str
    new: str
    expected_len: int
    expected_sha: str
    compact: bool

    def matches(self, ids: npt.NDArray[np.uint32]) -> bool:
        """True when the hash of the ids, as the collection writes it, is the expected one."""
        separators = (",", ":") if self.compact else None
        digest = hashlib.sha256(json.dumps(ids.tolist(), separators=separators).encode()).hexdigest()
        return digest.startswith(self.expected_sha)


def load_cases(name: str) -> Iterator[WideCase]:
    """The cases of `splice_cases` or `rule_cases`."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        pytest.skip(f"the wider cases are not here: {path.name}")
    for entry in json.loads(path.read_text()):
        tokenizer = entry["tokenizer"].split("/")[0]
        yield WideCase(
            tokenizer=NAMES.get(tokenizer, tokenizer),
            old=entry.get("prev", entry.get("old")),
            new=entry["new"],
            expected_len=entry["expected_len"],
            expected_sha=entry.get("expected_sha") or entry["expected_sha256_of_ids_json"],
            compact="expected_sha" not in entry,
        )
