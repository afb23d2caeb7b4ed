"""The operators' side channel as a worker sees it: breakers and sampling rates from tokenize.control."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from pipeline.ports import Record
from schemas.errors import ProtocolError
from schemas.health import ALL_TOKENIZERS, Control

BreakerListener = Callable[[str | None], None]

_log = logging.getLogger(__name__)


class ControlView(Protocol):
    """What services may ask about the operators' settings. Never blocks."""

    def breaker_open(self, fingerprint: str) -> bool:
        """True while fast paths are barred for this tokenizer: only the reference's own full encode may
        answer."""

    def own_breaker_open(self, fingerprint: str) -> bool:
        """True while the tokenizer's own breaker is open, which stays when that of all is closed."""

    def own_sampling(self, fingerprint: str) -> float | None:
        """What the tokenizer's own record says of sampling; None when it says nothing."""

    def sampling(self, fingerprint: str) -> float:
        """Share, 0 to 1, of this tokenizer's answers to sample for checking."""

    def on_breaker(self, listener: BreakerListener) -> None:
        """Have `listener` called, on the event loop, for each breaker that is open now and whenever one opens or
        closes: with the tokenizer's fingerprint, or None for all. It must be quick and idempotent."""


class ControlState:
    """The latest control record of each tokenizer; a record for "*" holds for all that have none of their
    own.

    An open breaker for "*" bars every tokenizer, whatever its own record says.
    """

    def __init__(self, *, default_sampling: float) -> None:
        self._default_sampling = default_sampling
        self._latest: dict[str, Control] = {}
        self._listeners: list[BreakerListener] = []

    def apply(self, record: Record) -> None:
        """Take one record of tokenize.control. A record that cannot be read changes nothing and is logged."""
        if record.value is None:
            if record.key is not None:
                self._take(record.key.decode("utf-8", "replace"), None)
            return
        try:
            control = Control.decode(record.value)
        except ProtocolError as error:
            _log.warning("control record %d/%d ignored: %s", record.partition, record.offset, error.code)
            return
        self._take(control.tokenizer, control)

    def _take(self, tokenizer: str, control: Control | None) -> None:
        before = self._latest.pop(tokenizer, None)
        if control is not None:
            self._latest[tokenizer] = control
        if _is_open(before) != _is_open(control):
            for listener in self._listeners:
                listener(_whose(tokenizer))

    def on_breaker(self, listener: BreakerListener) -> None:
        self._listeners.append(listener)
        for control in tuple(self._latest.values()):
            if control.breaker_open:
                listener(_whose(control.tokenizer))

    def breaker_open(self, fingerprint: str) -> bool:
        records = (self._latest.get(ALL_TOKENIZERS), self._latest.get(fingerprint))
        return any(control.breaker_open for control in records if control is not None)

    def own_breaker_open(self, fingerprint: str) -> bool:
        return _is_open(self._latest.get(fingerprint))

    def own_sampling(self, fingerprint: str) -> float | None:
        control = self._latest.get(fingerprint)
        return None if control is None else control.sampling

    def sampling(self, fingerprint: str) -> float:
        for said in (self.own_sampling(fingerprint), self.own_sampling(ALL_TOKENIZERS)):
            if said is not None:
                return said
        return self._default_sampling


def _is_open(control: Control | None) -> bool:
    return control is not None and control.breaker_open


def _whose(tokenizer: str) -> str | None:
    return None if tokenizer == ALL_TOKENIZERS else tokenizer
