"""Every error that the pipeline raises on purpose.

    PipelineError                  .code, .retriable; the message says what happened and what to do
    |-- BrokerUnavailableError     no acknowledgement within the time limit; the record may be written or not
    |   `-- BrokerOverloadedError  the partition is full of unread records; nothing was written
    |-- BrokerRefusedError         the broker said no (rights, configuration); trying again will not help
    |-- RecordTooLargeError        one record is over the size that the broker takes; nothing was written
    |-- TopologyError              a topic or partition is missing, or a partition count is another one
    |-- ClosedError                a producer, consumer, tail or broker was used after it was stopped
    |-- DeadlineError              the caller's deadline passed before the answer came
    |-- ReplyError                 the pipeline answered a request with a failure; carries its code
    `-- SettingsError              an environment variable or option holds a value that makes no sense

`code` is stable and is the protocol's `schemas.codes.Code` wherever one fits, so that a failure keeps its
name from the broker to the client's log. `retriable` says whether the same call can succeed later,
unchanged.
"""

from __future__ import annotations

from schemas.codes import Code


class PipelineError(Exception):
    """The root of all errors of the pipeline."""

    code: str = Code.INTERNAL
    retriable: bool = False


class BrokerUnavailableError(PipelineError):
    """The broker did not acknowledge within the time limit.

    After a failed `Producer.send` the record may still be written: delivery is at least once, so send it
    again.
    """

    code: str = Code.BROKER_UNAVAILABLE
    retriable: bool = True


class BrokerOverloadedError(BrokerUnavailableError):
    """A partition holds as many unread records as it may; its readers have to catch up first."""

    code: str = Code.OVERLOADED


class BrokerRefusedError(PipelineError):
    """The broker refused the call for good: missing rights, a wrong password, a wrong configuration."""

    code: str = Code.BROKER_UNAVAILABLE


class RecordTooLargeError(PipelineError):
    """One record is larger than `pipeline.ports.MAX_RECORD_BYTES`, or than the broker's own limit."""

    code: str = Code.TEXT_TOO_LARGE


class TopologyError(PipelineError):
    """The broker's topics are not what `pipeline.topology` says; `ensure_topics` creates missing ones."""

    code: str = "topology"


class ClosedError(PipelineError):
    """Something was used after its `stop`."""

    code: str = "closed"


class DeadlineError(PipelineError):
    """The deadline that the caller gave has passed; the state of the session is unknown to the caller."""

    code: str = Code.EXPIRED
    retriable: bool = True


class ReplyError(PipelineError):
    """A reply with a failure status, as an exception.

    `code` and `retriable` are the reply's own, and so vary by instance.
    """

    def __init__(self, code: str, message: str, *, retriable: bool) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.retriable = retriable


class SettingsError(PipelineError):
    """A setting cannot be understood; the message names it, its value and what would be accepted."""

    code: str = "settings"
