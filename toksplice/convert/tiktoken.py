"""Rank files: one `base64 rank` pair a line, as tiktoken, Llama 3 and 4, Qwen and Whisper have them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping

from toksplice.convert import document
from toksplice.convert.document import Added
from toksplice.convert.merges import last_merge
from toksplice.errors import TokenizerError

Ranks = dict[bytes, int]


def read_ranks(data: bytes) -> Ranks:
    """Parse a rank file. Raises `TokenizerError` on anything else, and when two entries share a rank."""
    ranks: Ranks = {}
    for number, line in enumerate(data.splitlines(), start=1):
        # Whisper's file has an entry for the empty string, which no text can yield.
        if not line or line.startswith(b"= "):
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise TokenizerError(f"line {number} of the rank file is not 'base64 rank'") from error
    return _checked(ranks)


def read_claude_ranks(data: bytes) -> Ranks:
    """Parse Claude's JSON: `bpe_ranks` is "! FIRST_RANK base64 base64 ..." Raises `TokenizerError` on anything else."""
    try:
        mark, first, *tokens = json.loads(data)["bpe_ranks"].split()
        ranks = {base64.b64decode(token, validate=True): int(first) + at for at, token in enumerate(tokens)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TokenizerError("not a JSON object with 'bpe_ranks'") from error
    if mark != "!":
        raise TokenizerError("'bpe_ranks' does not begin with '!'")
    return _checked(ranks)


def merges(ranks: Mapping[bytes, int]) -> list[tuple[str, str]]:
    """The merges in order of rank, in byte letters. Entries that no merge makes have none."""
    letters = document.byte_letters()
    by_rank = sorted((rank, token) for token, rank in ranks.items() if len(token) > 1)
    pairs = (last_merge(token, ranks) for _, token in by_rank)
    return [(spell(left, letters), spell(right, letters)) for left, right in filter(None, pairs)]


def spell(token: bytes, letters: Mapping[int, str]) -> str:
    """Bytes as byte-level vocabularies write them."""
    return "".join([letters[byte] for byte in token])


def convert(
    data: bytes,
    *,
    pattern: str | None,
    special: Mapping[str, int],
    normal_form: str | None = None,
    read: Callable[[bytes], Ranks] = read_ranks,
) -> bytes:
    """The tokenizer.json of a rank file. `pattern` None is GPT-2's. Raises `TokenizerError`."""
    return from_ranks(read(data), pattern=pattern, special=special, normal_form=normal_form)


def from_ranks(
    ranks: Mapping[bytes, int],
    *,
    pattern: str | None,
    special: Mapping[str, int],
    normal_form: str | None = None,
    first_id: int = 0,
) -> bytes:
    """The tokenizer.json of a rank table; ids are ranks plus `first_id`. Raises `TokenizerError`."""
    letters = document.byte_letters()
    vocab = {spell(token, letters): rank + first_id for token, rank in ranks.items()}
    taken = set(vocab.values()) & set(special.values())
    if taken:
        raise TokenizerError(f"special tokens have ids of other entries: {sorted(taken)[:3]}")
    return document.tokenizer_json(
        # tiktoken looks a whole piece up before it merges, which for some files finds entries that no merges make.
        document.bpe(vocab | dict(special), merges(ranks), ignore_merges=True),
        added=[Added(content, id_) for content, id_ in special.items()],
        normalizer=None if normal_form is None else {"type": normal_form},
        pre_tokenizer=document.byte_level(pattern),
        decoder=document.byte_level_decoder(),
    )


def _checked(ranks: Ranks) -> Ranks:
    if not ranks:
        raise TokenizerError("the rank file is empty")
    if len(set(ranks.values())) != len(ranks) or min(ranks.values()) < 0:
        raise TokenizerError("two entries of the rank file share a rank, or one is negative")
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise TokenizerError(f"the rank file lacks {len(missing)} of the 256 bytes: this is not a whole rank file")
    return ranks
