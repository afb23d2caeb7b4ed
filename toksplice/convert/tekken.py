"""Mistral's tekken.json: a rank table with its split pattern; ids begin behind the special tokens."""

from __future__ import annotations

import base64
import json
from typing import Any

from toksplice.convert import tiktoken
from toksplice.errors import TokenizerError

UNNAMED = "<SPECIAL_{}>"
"""Special tokens that a file counts and does not name."""
OLD_NAMES = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip
"""The names in files that have no list of special tokens."""


def convert(data: bytes) -> bytes:
    """The tokenizer.json of a tekken.json. Raises `TokenizerError` on anything else."""
    try:
        file = json.loads(data)
        config = file["config"]
        special = int(config["default_num_special_tokens"])
        # The list is longer than the vocabulary of the model, which takes its beginning.
        entries = file["vocab"][: int(config["default_vocab_size"]) - special]
        ranks = {base64.b64decode(entry["token_bytes"], validate=True): int(entry["rank"]) for entry in entries}
        names = _names(file.get("special_tokens"), special)
        pattern = str(config["pattern"])
    except (ValueError, KeyError, TypeError) as error:
        raise TokenizerError(f"not a tekken.json: {error!r}") from error
    if sorted(ranks.values()) != list(range(len(entries))):
        raise TokenizerError("the ranks of the tekken.json are not 0, 1, 2, ... without gaps")
    return tiktoken.from_ranks(ranks, pattern=pattern, special=names, first_id=special)


def _names(listed: list[dict[str, Any]] | None, count: int) -> dict[str, int]:
    known = dict(enumerate(OLD_NAMES)) if listed is None else {int(t["rank"]): str(t["token_str"]) for t in listed}
    return {known.get(id_, UNNAMED.format(id_)): id_ for id_ in range(count)}
