"""Byte-pair vocabularies of SentencePiece: pieces with scores, bytes for what is unknown, spaces as marks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from toksplice.convert import document
from toksplice.convert.document import Added
from toksplice.convert.merges import all_splits, last_merge
from toksplice.errors import TokenizerError


class Kind(IntEnum):
    """What a piece is; SentencePiece and GGUF number the kinds alike."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Piece:
    id: int
    text: str
    score: float
    kind: Kind


def convert(pieces: Sequence[Piece], *, unk_id: int, prefix: bool, rstrip: Collection[str] = ()) -> bytes:
    """The tokenizer.json of byte-pair pieces. Raises `TokenizerError` for what it could not represent.

    `prefix`: a mark is put in front of each section. `rstrip`: added tokens that swallow the white space behind.
    """
    unk = next((piece.text for piece in pieces if piece.id == unk_id), None)
    if unk is None:
        raise TokenizerError("there is no piece for what is unknown")
    if {piece.text for piece in pieces if piece.kind == Kind.BYTE} != {f"<0x{byte:02X}>" for byte in range(256)}:
        raise TokenizerError("the pieces lack some of the 256 bytes")
    if any(piece.kind == Kind.UNUSED for piece in pieces):
        raise TokenizerError("unused pieces are not supported")
    vocab = {piece.text: piece.id for piece in pieces}
    if len(vocab) != len(pieces):
        raise TokenizerError("two pieces have the same text")
    added = (Kind.UNKNOWN, Kind.CONTROL, Kind.USER_DEFINED)
    return document.tokenizer_json(
        document.bpe(vocab, merges(pieces), unk_token=unk, byte_fallback=True),
        added=[
            Added(piece.text, piece.id, special=piece.kind != Kind.USER_DEFINED, rstrip=piece.text in rstrip)
            for piece in pieces
            if piece.kind in added
        ],
        normalizer=document.spaces_to_marks(prefix=prefix),
        pre_tokenizer=None,
        decoder=document.marks_to_spaces(prefix=prefix),
    )


def merges(pieces: Iterable[Piece]) -> list[tuple[str, str]]:
    """The merges of the normal pieces, best score first.

    Pieces that share a score have no order among themselves: SentencePiece then merges the leftmost, whichever it is.
    Merges in order cannot say that, but for runs of one character (the runs of spaces that several vocabularies got
    by hand) all ways to make each, in order of the ids, come to the same. Raises `TokenizerError` for any others.
    """
    normal = [piece for piece in pieces if piece.kind == Kind.NORMAL]
    rank = {piece.text: -piece.score for piece in normal}
    shared = Counter(piece.score for piece in normal if len(piece.text) > 1)
    found: list[tuple[str, str]] = []
    for piece in sorted(normal, key=lambda piece: (-piece.score, piece.id)):
        if len(piece.text) > 1:
            found += _merges_of(piece, rank, tied=shared[piece.score] > 1)
    return found


def _merges_of(piece: Piece, rank: Mapping[str, float], *, tied: bool) -> Sequence[tuple[str, str]]:
    if any(character not in rank for character in piece.text):
        raise TokenizerError(f"piece {piece.text!r} has a character that is no piece")
    if not tied:
        merge = last_merge(piece.text, rank)
        return [] if merge is None else [merge]
    if len(set(piece.text)) > 1:
        raise TokenizerError(f"piece {piece.text!r} shares its score with others")
    return all_splits(piece.text, rank)
