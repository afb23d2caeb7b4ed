"""The identity of a tokenizer: what decides its ids, hashed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import tokenizers

from toksplice.errors import TokenizerError


def parse(data: bytes) -> dict[str, Any]:
    """Parse the bytes of a tokenizer.json; raises `TokenizerError` when they are not a JSON object."""
    try:
        config = json.loads(data)
    except ValueError as error:
        raise TokenizerError(f"not a tokenizer.json: {error}") from error
    if not isinstance(config, dict) or "model" not in config:
        raise TokenizerError("not a tokenizer.json: a JSON object with a 'model' is needed")
    return config


def fingerprint(data: bytes) -> str:
    """`fingerprint_of` the parsed bytes; raises `TokenizerError` when they are not a tokenizer.json."""
    return fingerprint_of(parse(data))


def fingerprint_of(config: dict[str, Any]) -> str:
    """SHA-256 (hex) of the canonical tokenizer.json plus the version of the reference library.

    White space and the order of keys do not count; the library's version does, since its Unicode tables
    and its faults decide ids as much as the vocabulary.
    """
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass"))
    digest.update(f"\ntokenizers=={tokenizers.__version__}".encode())
    return digest.hexdigest()
