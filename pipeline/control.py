"""The operators' side channel as a worker sees it: breakers and sampling rates from tokenize.control."""

from __future__ import annotations

import logging
from typing import Protocol

from pipeline.ports import Record
from schemas.errors import ProtocolError
from schemas.health import ALL_TOKENIZERS, Control

_log = logging.getLogger(__name__)


class ControlView(Protocol):
    """What services may ask about the operators' settings. Never blocks."""

    def breaker_open(self, fingerprint: str) -> bool:
        """True while fast paths are barred for this tokenizer: only the reference's own full encode may
        answer."""

    def sampling(self, fingerprint: str) -> float:
        """Share, 0 to 1, of this tokenizer's answers to sample for checking."""


class ControlState:
    """The latest control record of each tokenizer; a record for "*" holds for all that have none of their
    own.

    An open breaker for "*" bars every tokenizer, whatever its own record says.
    """

    def __init__(self, *, default_sampling: float) -> None:
        self._default_sampling = default_sampling
        self._latest: dict[str, Control] = {}

    def apply(self, record: Record) -> None:
        """Take one record of tokenize.control. A record that cannot be read changes nothing and is logged."""
        if record.value is None:
            if record.key is not None:
                self._latest.pop(record.key.decode("utf-8", "replace"), None)
            return
        try:
            control = Control.decode(record.value)
        except ProtocolError as error:
            _log.warning("control record %d/%d ignored: %s", record.partition, record.offset, error.code)
            return
        self._latest[control.tokenizer] = control

    def breaker_open(self, fingerprint: str) -> bool:
        records = (self._latest.get(ALL_TOKENIZERS), self._latest.get(fingerprint))
        return any(control.breaker_open for control in records if control is not None)

    def sampling(self, fingerprint: str) -> float:
        control = self._latest.get(fingerprint) or self._latest.get(ALL_TOKENIZERS)
        return self._default_sampling if control is None else control.sampling
