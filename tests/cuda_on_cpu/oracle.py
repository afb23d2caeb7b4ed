"""What a text's encoding must be: the reference's, and byte positions from the lengths of its tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tokenizers

from gpu_worker.encoder import U32, Encoding
from toksplice import Tokenizer
from toksplice.convert.document import byte_letters
from toksplice.reference import char_starts


@dataclass(frozen=True, slots=True)
class Wrong:
    """An encoding that is not the reference's: what of it first differs, and where."""

    what: str
    text: str
    at: int

    def __str__(self) -> str:
        return f"{self.what} differ from entry {self.at} on: {self.text[:200]!a}"


class Oracle:
    """The reference without its post-processor, which moves no token but trims spans."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        config = json.loads(tokenizer.reference.config_json)
        config["post_processor"] = None
        self._reference = tokenizers.Tokenizer.from_str(json.dumps(config))
        letters = set(byte_letters().values())
        self._length_of = {
            token: len(spelling) for spelling, token in config["model"]["vocab"].items() if letters.issuperset(spelling)
        }
        for entry in config["added_tokens"]:
            self._length_of[entry["id"]] = len(entry["content"].encode())

    def faults(self, texts: Sequence[str], encodings: Sequence[Encoding]) -> list[Wrong]:
        """Every encoding that is not its text's."""
        expected = self._reference.encode_batch(list(texts), add_special_tokens=False)
        found = [self._fault(*each) for each in zip(texts, expected, encodings, strict=True)]
        return [fault for fault in found if fault is not None]

    def _fault(self, text: str, expected: tokenizers.Encoding, encoding: Encoding) -> Wrong | None:
        ids = np.array(expected.ids, dtype=np.uint32)
        bytes_of_chars = char_starts(text)
        spans = bytes_of_chars[np.array(expected.offsets, dtype=np.int64).reshape(-1, 2)]
        lengths = np.array([self._length_of[token] for token in expected.ids], dtype=np.uint32)
        starts = np.cumsum(lengths, dtype=np.uint32) - lengths
        assert int(lengths.sum()) == len(text.encode()), "tokens do not tile the text"
        words = np.array([-1 if word is None else word for word in expected.word_ids], dtype=np.int64)
        is_first = np.ones(len(ids), dtype=np.bool_)
        is_first[1:] = words[1:] != words[:-1]
        # The reference counts in characters, so a token that begins inside one has the start of that one.
        floors = bytes_of_chars[np.searchsorted(bytes_of_chars, encoding.starts, side="right") - 1]
        for what, right, given in (
            ("ids", ids, encoding.ids),
            ("starts", starts, encoding.starts),
            ("spans", spans[:, 0].astype(np.uint32), floors),
            ("pieces", starts[is_first], encoding.pieces),
        ):
            if not np.array_equal(right, given):
                return Wrong(what, text, _first_difference(right, given))
        return None


def _first_difference(one: U32, other: U32) -> int:
    shared = min(len(one), len(other))
    differ = np.flatnonzero(one[:shared] != other[:shared])
    return int(differ[0]) if len(differ) else shared
