"""The breakers of a broker, as tokenize.control has them."""

from __future__ import annotations

from cli.topics import records_of
from pipeline.ports import Broker
from schemas.errors import ProtocolError
from schemas.health import Control
from schemas.topics import CONTROL


async def open_breakers(broker: Broker, partitions: int) -> dict[str, Control]:
    """The control records of tokenizers whose breaker is open, by fingerprint, or "*"."""
    latest: dict[str, Control | None] = {}
    async for record in records_of(broker, CONTROL, range(partitions), "the breakers"):
        if record.value is None:
            latest[(record.key or b"").decode("utf-8", "replace")] = None
            continue
        try:
            control = Control.decode(record.value)
        except ProtocolError:
            continue
        latest[control.tokenizer] = control
    return {tokenizer: control for tokenizer, control in latest.items() if control is not None and control.breaker_open}
