"""GPT-2's `tokenizer.json`, built from the small rank file that is committed with the package.

A rank file lists byte strings with their ranks, in the order in which byte-pair training made them. A
Hugging Face tokenizer wants the merges instead. Each multi-byte entry was made by exactly one merge: run
byte-pair encoding on the entry itself with only the lower ranks allowed; the two parts that remain are
the merge. (Listing every split of an entry into two known parts would give merges that training never made.)

The result has the same vocabulary, merges and pipeline as the published GPT-2 file, so the same ids.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import lzma
from importlib import resources
from itertools import pairwise

from toksplice.errors import TokenizerError

RANKS_FILE = "r50k_base.tiktoken.xz"
RANKS_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
RANKS_SIZE_BYTES = 835_554
END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 50_256


def gpt2_tokenizer_json() -> bytes:
    """The whole `tokenizer.json` of GPT-2 as UTF-8 JSON (1.6 MB, always the same bytes; takes a second).

    Raises `TokenizerError` when the committed rank file is damaged.
    """
    return hugging_face_json(read_ranks(_rank_file()))


def read_ranks(data: bytes) -> dict[bytes, int]:
    """Parse a rank file: one `base64 rank` pair a line. Raises `TokenizerError` on anything else."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise TokenizerError(f"line {number} of the rank file is not 'base64 rank'") from error
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise TokenizerError("the ranks are not 0, 1, 2, ... without gaps: this is not a whole rank file")
    return ranks


def merge_of(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The pair whose merge made `token`. Raises `TokenizerError` when no merge of lower ranks makes it."""
    parts = [token[i : i + 1] for i in range(len(token))]
    limit = ranks[token]
    while len(parts) > 2:
        pairs = [ranks.get(left + right, limit) for left, right in pairwise(parts)]
        best = min(pairs)
        if best >= limit:
            break
        at = pairs.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    if len(parts) != 2:
        raise TokenizerError(f"rank {limit} cannot be made by merging lower ranks")
    return parts[0], parts[1]


def hugging_face_json(ranks: dict[bytes, int]) -> bytes:
    """A byte-level BPE `tokenizer.json` with GPT-2's pre-tokenizer for a rank table."""
    letters = byte_letters()
    vocab = {"".join(letters[b] for b in token): rank for token, rank in ranks.items()}
    merges = [
        ["".join(letters[b] for b in part) for part in merge_of(token, ranks)]
        for token, _ in sorted(ranks.items(), key=lambda item: item[1])
        if len(token) > 1
    ]
    vocab[END_OF_TEXT] = END_OF_TEXT_ID
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": END_OF_TEXT_ID,
                "content": END_OF_TEXT,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        # As in the published file: it changes neither ids nor offsets.
        "post_processor": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": False,
            "use_regex": True,
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def byte_letters() -> dict[int, str]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2's table).

    Printable Latin-1 bytes stand for themselves; the other 68, in order, are U+0100 and following.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in letters)
    letters |= {byte: chr(0x100 + position) for position, byte in enumerate(list(others))}
    return letters


def _rank_file() -> bytes:
    packed = resources.files("toksplice").joinpath("data", RANKS_FILE).read_bytes()
    try:
        data = lzma.LZMADecompressor().decompress(packed, max_length=RANKS_SIZE_BYTES + 1)
    except lzma.LZMAError as error:
        raise TokenizerError(f"toksplice/data/{RANKS_FILE} is damaged: reinstall the package") from error
    if hashlib.sha256(data).hexdigest() != RANKS_SHA256:
        raise TokenizerError(f"toksplice/data/{RANKS_FILE} is another file: reinstall the package")
    return data
