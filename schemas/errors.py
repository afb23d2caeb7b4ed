"""The one exception of this package."""

from __future__ import annotations

from schemas.codes import Code


class ProtocolError(Exception):
    """A record, or a message about to become one, breaks the protocol.

    `code` is stable and goes into the reply; `message` names cause and remedy and never quotes a field's
    value, so that it is safe to log; `field` is the dotted name of the field at fault, or None when the fault
    is in the record as a whole.
    """

    def __init__(self, code: Code, message: str, field: str | None = None) -> None:
        super().__init__(code, message, field)
        self.code = code
        self.message = message
        self.field = field

    def __str__(self) -> str:
        return f"{self.code.value}: {self.message}"

    @property
    def retriable(self) -> bool:
        """Whether the same record, sent again unchanged, may succeed."""
        return self.code.retriable
