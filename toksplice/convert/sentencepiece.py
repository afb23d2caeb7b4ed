"""SentencePiece models: a protocol buffer, of which the few fields that decide ids are read here."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from toksplice.convert import pieces
from toksplice.convert.pieces import Kind, Piece
from toksplice.errors import TokenizerError

BPE = 2
"""`TrainerSpec.model_type`."""

Value = int | bytes


@dataclass(frozen=True, slots=True)
class Model:
    """What decides ids. The defaults are those of SentencePiece's own definition of the file."""

    pieces: tuple[Piece, ...] = ()
    model_type: int = 1
    byte_fallback: bool = False
    whitespace_as_suffix: bool = False
    character_map: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True


def convert(data: bytes) -> bytes:
    """The tokenizer.json of a byte-pair model without a character map. Raises `TokenizerError` for any other."""
    model = read(data)
    reasons = {
        "it is not a byte-pair model": model.model_type != BPE,
        "it has no byte fallback": not model.byte_fallback,
        "it maps characters": bool(model.character_map),
        "it removes spaces": model.remove_extra_whitespaces,
        "it leaves spaces as they are": not model.escape_whitespaces,
        "it puts marks behind words": model.whitespace_as_suffix,
    }
    for reason, holds in reasons.items():
        if holds:
            raise TokenizerError(f"this SentencePiece model cannot be converted: {reason}")
    unknown = [piece.id for piece in model.pieces if piece.kind == Kind.UNKNOWN]
    if len(unknown) != 1:
        raise TokenizerError(f"{len(unknown)} pieces stand for what is unknown")
    return pieces.convert(model.pieces, unk_id=unknown[0], prefix=model.add_dummy_prefix)


def read(data: bytes) -> Model:
    """Parse a model file. Raises `TokenizerError` on anything else."""
    try:
        found: list[Piece] = []
        trainer: dict[int, Value] = {}
        normalizer: dict[int, Value] = {}
        for number, value in fields(data):
            if number == 1:
                found.append(_piece(len(found), _bytes(value)))
            elif number == 2:
                trainer |= dict(fields(_bytes(value)))
            elif number == 3:
                normalizer |= dict(fields(_bytes(value)))
    except (IndexError, ValueError, struct.error) as error:
        raise TokenizerError(f"not a SentencePiece model: {error}") from error
    if not found:
        raise TokenizerError("not a SentencePiece model: no pieces")
    return Model(
        pieces=tuple(found),
        model_type=int(trainer.get(3, 1)),
        byte_fallback=bool(trainer.get(35, 0)),
        whitespace_as_suffix=bool(trainer.get(24, 0)),
        character_map=_bytes(normalizer.get(2, b"")),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
        escape_whitespaces=bool(normalizer.get(5, 1)),
    )


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of a protocol buffer message: number, and an integer or the raw bytes.

    Raises `ValueError` or `IndexError` when it ends within a field or has a group.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(message, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(message):
            raise ValueError("it ends within a field")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("an integer that does not end")


def _piece(id_: int, message: bytes) -> Piece:
    found = dict(fields(message))
    (score,) = struct.unpack("<f", _bytes(found.get(2, bytes(4))))
    return Piece(id_, _bytes(found.get(1, b"")).decode(), score, Kind(int(found.get(3, Kind.NORMAL))))


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("an integer where bytes are expected")
    return value
