"""Time limits around every call into the client library, and its errors in our terms.

The library waits without a limit in many places: for metadata, for an assignment, for a flush, and in
`stop`. So no call of ours goes without `limited`, and whatever does not close in time is torn down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from aiokafka import errors as kafka

from pipeline.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    PipelineError,
    RecordTooLargeError,
    TopologyError,
)

_log = logging.getLogger(__name__)

#: How long torn-down tasks and sockets are waited for.
TEAR_DOWN_S: Final = 1.0

_TOO_LARGE: Final = (
    kafka.MessageSizeTooLargeError,
    kafka.RecordListTooLargeError,
    kafka.RecordTooLargeError,
)
_TOPOLOGY: Final = (kafka.UnknownTopicOrPartitionError, kafka.InvalidTopicError)
_REFUSED: Final = (
    kafka.AuthenticationFailedError,
    kafka.AuthenticationMethodNotSupported,
    kafka.ClusterAuthorizationFailedError,
    kafka.GroupAuthorizationFailedError,
    kafka.InconsistentGroupProtocolError,
    kafka.InvalidConfigurationError,
    kafka.InvalidReplicationFactorError,
    kafka.InvalidSessionTimeoutError,
    kafka.PolicyViolationError,
    kafka.SaslAuthenticationFailed,
    kafka.TopicAuthorizationFailedError,
    kafka.UnsupportedSaslMechanismError,
    kafka.UnsupportedVersionError,
)


def translate(error: kafka.KafkaError, what: str) -> PipelineError:
    """The pipeline's error for an error of the library that came out of doing `what`."""
    message = f"{what}: {error!r}"
    if isinstance(error, _TOO_LARGE):
        return RecordTooLargeError(message)
    if isinstance(error, _TOPOLOGY):
        return TopologyError(f"{message}; call ensure_topics first")
    if isinstance(error, _REFUSED):
        return BrokerRefusedError(message)
    return BrokerUnavailableError(message)


@asynccontextmanager
async def limited(seconds: float, what: str) -> AsyncIterator[None]:
    """Raise BrokerUnavailableError if the block takes over `seconds`, and translate the library's errors."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise BrokerUnavailableError(f"{what}: no answer from the broker within {seconds:g} s") from error
    except kafka.KafkaError as error:
        raise translate(error, what) from error


async def close(client: Any, seconds: float) -> None:
    """Stop a producer or consumer of the library; tear it down if it does not stop within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await client.stop()
    except TimeoutError:
        _log.warning("a Kafka client did not close within %g s and is torn down", seconds)
    except kafka.KafkaError as error:
        _log.warning("a Kafka client failed to close and is torn down: %r", error)
    except BaseException:
        _abandon(client)
        raise
    else:
        return
    tasks = _abandon(client)
    if tasks:
        await asyncio.wait(tasks, timeout=TEAR_DOWN_S)


def _abandon(client: Any) -> list[asyncio.Task[Any]]:
    """Cancel the background tasks and close the sockets of a client whose `stop` was given up.

    The library offers no such thing, so this reaches into its attributes; one that a later version renames
    only means that a task ends by itself, later.
    """
    client._closed = True  # or its destructor warns, rightly, of an unclosed client
    connection = getattr(client, "_client", None) or getattr(client, "client", None)
    owners = (
        getattr(client, "_fetcher", None),
        getattr(client, "_coordinator", None),
        getattr(client, "_sender", None),
        connection,
    )
    names = (
        "_fetch_task",
        "_coordination_task",
        "_heartbeat_task",
        "_commit_refresh_task",
        "_reset_committed_task",
        "_sender_task",
        "_sync_task",
    )
    found = [getattr(owner, name, None) for owner in owners for name in names]
    tasks = [task for task in found if isinstance(task, asyncio.Task) and not task.done()]
    tasks += [task for task in getattr(owners[0], "_pending_tasks", ()) if not task.done()]
    for task in tasks:
        task.cancel()
    for socket in list(getattr(connection, "_conns", {}).values()):
        with suppress(Exception):
            socket.close()
    return tasks
