"""Reading the components of a tokenizer.json: what they have in common, and how one is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class NotUnderstoodError(Exception):
    """A part of the tokenizer that a route has no argument for; the message says which."""


def steps(config: Mapping[str, Any] | None, member: str) -> list[Mapping[str, Any]]:
    """The steps of a component, sequences within sequences laid flat; `member` holds a sequence's own."""
    if config is None:
        return []
    if "type" not in config:
        raise NotUnderstoodError("a component without a type")
    if config["type"] != "Sequence":
        return [config]
    return [step for child in config[member] for step in steps(child, member)]


def trims_offsets(post_processor: Mapping[str, Any] | None) -> bool:
    """True when a post-processor moves the ends of spans."""
    return any(
        step["type"] in ("ByteLevel", "RobertaProcessing") and step.get("trim_offsets", True)
        for step in steps(post_processor, "processors")
    )
