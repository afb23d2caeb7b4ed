"""Vocabularies in GGUF, the file format of llama.cpp: typed keys and values, of which `tokenizer.ggml.*` are read.

The files hold tokens, their types, and merges or scores. What else a tokenizer needs they only name
(`tokenizer.ggml.pre`), so the converters take it as arguments.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toksplice.convert import document, pieces
from toksplice.convert.document import SPACE_MARK, Added, Json
from toksplice.convert.pieces import Kind, Piece
from toksplice.errors import TokenizerError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""GGUF's types of numbers, in the letters of `struct`."""
STRING, ARRAY = 8, 9
PREFIX = "tokenizer.ggml."
NO_SCORE = 0.0


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`facts`: the other keys under `tokenizer.ggml.`, without that prefix."""

    pieces: tuple[Piece, ...]
    facts: Mapping[str, Any]

    def id_of(self, key: str, otherwise: int) -> int:
        """A token id that the file names, such as `unknown_token_id`."""
        return int(self.facts.get(key, otherwise))


def read(data: bytes) -> Vocabulary:
    """Parse a file. Raises `TokenizerError` on anything else.

    Entries that only fill the vocabulary up to the width of the model's matrix are left out: unused ones, and
    `[PAD7]` for id 7.
    """
    try:
        facts = {key.removeprefix(PREFIX): value for key, value in _pairs(data) if key.startswith(PREFIX)}
        tokens: Sequence[str] = facts.pop("tokens")
        types: Sequence[int] = facts.pop("token_type")
        scores: Sequence[float] = facts.pop("scores", [NO_SCORE] * len(tokens))
        rows = zip(range(len(tokens)), tokens, scores, map(Kind, types), strict=True)
        kept = [Piece(*row) for row in rows if row[3] != Kind.UNUSED and row[1] != f"[PAD{row[0]}]"]
    except (ValueError, KeyError, struct.error) as error:
        raise TokenizerError(f"not a GGUF vocabulary: {error!r}") from error
    return Vocabulary(tuple(kept), facts)


def convert_byte_level(
    data: bytes,
    *,
    pre_tokenizer: Json,
    normal_form: str | None = None,
    ignore_merges: bool = False,
    special: Collection[str] = (),
) -> bytes:
    """The tokenizer.json of a byte-level vocabulary. `special`: added tokens that the file has as ordinary ones."""
    vocabulary = _of_model(read(data), "gpt2")
    return document.tokenizer_json(
        document.bpe(_ids(vocabulary), _merges(vocabulary), ignore_merges=ignore_merges),
        added=_added(vocabulary, special),
        normalizer=None if normal_form is None else {"type": normal_form},
        pre_tokenizer=pre_tokenizer,
        decoder=document.byte_level_decoder(),
    )


def convert_pieces(
    data: bytes, *, prefix: bool = True, user_defined: Collection[int] = (), rstrip: Collection[str] = ()
) -> bytes:
    """The tokenizer.json of SentencePiece pieces. `user_defined`: ids of such pieces that the file has as normal."""
    vocabulary = _of_model(read(data), "llama")
    found = [
        Piece(piece.id, piece.text, piece.score, Kind.USER_DEFINED) if piece.id in user_defined else piece
        for piece in vocabulary.pieces
    ]
    return pieces.convert(found, unk_id=vocabulary.id_of("unknown_token_id", 0), prefix=prefix, rstrip=rstrip)


def convert_gemma(data: bytes) -> bytes:
    """The tokenizer.json of Gemma 4: merges over whole sections, spaces as marks."""
    vocabulary = _of_model(read(data), "gemma4")
    unk = next(piece.text for piece in vocabulary.pieces if piece.id == vocabulary.id_of("unknown_token_id", 3))
    return document.tokenizer_json(
        document.bpe(_ids(vocabulary), _merges(vocabulary), unk_token=unk, byte_fallback=True),
        added=_added(vocabulary),
        normalizer=document.spaces_to_marks(prefix=False),
        pre_tokenizer=None,
        decoder=document.marks_to_spaces(prefix=False),
    )


def convert_word_piece(data: bytes) -> bytes:
    """The tokenizer.json of an uncased BERT. In the file, words begin with a mark and continuations are bare."""
    vocabulary = _of_model(read(data), "bert")
    vocab = {_word_piece(piece.text): piece.id for piece in vocabulary.pieces}
    unk = next(piece.text for piece in vocabulary.pieces if piece.id == vocabulary.id_of("unknown_token_id", 100))
    return document.tokenizer_json(
        {
            "type": "WordPiece",
            "unk_token": unk,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
        added=_added(vocabulary),
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


def convert_unigram(data: bytes) -> bytes:
    """The tokenizer.json of a Unigram vocabulary with a character map, word by word, as XLM-RoBERTa's is."""
    vocabulary = _of_model(read(data), "t5")
    character_map = bytes(byte & 0xFF for byte in vocabulary.facts["precompiled_charsmap"])
    marks = {"type": "Metaspace", "replacement": SPACE_MARK, "prepend_scheme": "always", "split": True}
    return document.tokenizer_json(
        {
            "type": "Unigram",
            "unk_id": vocabulary.id_of("unknown_token_id", 0),
            "vocab": [[piece.text, piece.score] for piece in vocabulary.pieces],
            "byte_fallback": False,
        },
        added=_added(vocabulary),
        normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(character_map).decode()},
        pre_tokenizer=document.sequence("pretokenizers", [{"type": "WhitespaceSplit"}, marks]),
        decoder=marks,
    )


def _of_model(vocabulary: Vocabulary, model: str) -> Vocabulary:
    found = vocabulary.facts.get("model")
    if found != model:
        raise TokenizerError(f"the GGUF file has a {found!r} vocabulary where {model!r} is expected")
    return vocabulary


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    return {piece.text: piece.id for piece in vocabulary.pieces}


def _merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    found = []
    for merge in vocabulary.facts.get("merges", ()):
        left, space, right = merge.partition(" ")
        if not (left and space and right) or " " in right:
            raise TokenizerError(f"{merge!r} is not a merge")
        found.append((left, right))
    return found


def _added(vocabulary: Vocabulary, special: Collection[str] = ()) -> Iterator[Added]:
    for piece in vocabulary.pieces:
        if piece.kind in (Kind.CONTROL, Kind.UNKNOWN) or piece.text in special:
            yield Added(piece.text, piece.id)
        elif piece.kind == Kind.USER_DEFINED:
            yield Added(piece.text, piece.id, special=False)


def _word_piece(text: str) -> str:
    if text.startswith(SPACE_MARK):
        return text.removeprefix(SPACE_MARK)
    return text if text.startswith("[") and text.endswith("]") else f"##{text}"


def _pairs(data: bytes) -> Iterator[tuple[str, Any]]:
    if data[:4] != MAGIC:
        raise ValueError("it does not begin with GGUF")
    version, _, count = struct.unpack_from("<IQQ", data, 4)
    if version not in VERSIONS:
        raise ValueError(f"version {version}")
    at = 24
    for _ in range(count):
        key, at = _string(data, at)
        (type_,) = struct.unpack_from("<I", data, at)
        value, at = _value(data, at + 4, type_)
        yield key, value


def _value(data: bytes, at: int, type_: int) -> tuple[Any, int]:
    if type_ == STRING:
        return _string(data, at)
    if type_ == ARRAY:
        return _array(data, at)
    (value,) = struct.unpack_from(f"<{SCALARS[type_]}", data, at)
    return value, at + struct.calcsize(SCALARS[type_])


def _array(data: bytes, at: int) -> tuple[list[Any], int]:
    type_, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if type_ in SCALARS:
        layout = f"<{count}{SCALARS[type_]}"
        # The size is known only now: a count beyond the file must not be allocated.
        if struct.calcsize(SCALARS[type_]) * count > len(data) - at:
            raise ValueError("an array that is longer than the file")
        return list(struct.unpack_from(layout, data, at)), at + struct.calcsize(layout)
    found = []
    for _ in range(count):
        value, at = _value(data, at, type_)
        found.append(value)
    return found, at


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<Q", data, at)
    end = at + 8 + size
    if end > len(data):
        raise ValueError("a text that is longer than the file")
    return data[at + 8 : end].decode(), end
