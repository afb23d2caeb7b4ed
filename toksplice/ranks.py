"""GPT-2's `tokenizer.json`, built from the small rank file that is committed with the package.

The result has the same vocabulary, merges and pipeline as the published GPT-2 file, so the same ids.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from importlib import resources

from toksplice.convert.document import byte_letters as byte_letters
from toksplice.convert.tiktoken import Ranks, merges, read_ranks, spell
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


def hugging_face_json(ranks: Ranks) -> bytes:
    """A byte-level BPE `tokenizer.json` with GPT-2's pre-tokenizer for a rank table."""
    letters = byte_letters()
    vocab = {spell(token, letters): rank for token, rank in ranks.items()}
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
            "merges": [list(pair) for pair in merges(ranks)],
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _rank_file() -> bytes:
    packed = resources.files("toksplice").joinpath("data", RANKS_FILE).read_bytes()
    try:
        data = lzma.LZMADecompressor().decompress(packed, max_length=RANKS_SIZE_BYTES + 1)
    except lzma.LZMAError as error:
        raise TokenizerError(f"toksplice/data/{RANKS_FILE} is damaged: reinstall the package") from error
    if hashlib.sha256(data).hexdigest() != RANKS_SHA256:
        raise TokenizerError(f"toksplice/data/{RANKS_FILE} is another file: reinstall the package")
    return data
