"""Errors without a broker's error code.

Two facts decide whether a record may be sent again:

- `possibly_persisted`: False if the record is certainly not in the log.
- `retriable`: True if a later attempt with the same record may succeed.

Two more facts concern transactions (KIP-1050): `abortable` and `fatal`.
"""

from __future__ import annotations

import enum
from typing import Final

_DOCS_URL: Final = ""
"""Base URL of the site, with a slash at the end; empty until the site has an address."""
_PACKAGE: Final = __name__.rpartition(".")[0] + "."
_UNNAMED: Final = "ErrorCode"
"""Prefix of the class names of unknown error codes."""


class ProducerError(Exception):
    """Base of all errors of this package."""

    retriable: bool = False
    """True if a later attempt with the same record may succeed."""
    abortable: bool = False
    """True if the transaction must be aborted; the producer remains usable."""
    fatal: bool = False
    """True if the producer is unusable and must be replaced by a new producer."""
    _is_of_record: bool = False
    """True if a broker refused the record for its content."""

    def __init__(self, message: str = "", *, possibly_persisted: bool = False) -> None:
        super().__init__(message)
        self.possibly_persisted = possibly_persisted
        """False if the record is certainly not in the log."""

    @property
    def docs_url(self) -> str:
        """Location of the error's documentation: a URL, or a path in the repository until the site has an address."""
        documented = (
            each.__name__
            for each in type(self).__mro__
            if each.__module__.startswith(_PACKAGE) and not each.__name__.startswith(_UNNAMED)
        )
        page = f"{_DOCS_URL}reliability.html" if _DOCS_URL else "docs/reliability.md"
        return f"{page}#{next(documented)}"


class ConfigError(ProducerError, ValueError):
    """An option is unknown, out of range, or contradicts another option."""


class SerializationError(ProducerError):
    """A serializer raised an exception (the `__cause__`), or returned another type than bytes."""


class SerializerUnavailable(SerializationError):
    """A serializer raised a ConnectionError or TimeoutError, for example because a schema registry is unreachable."""

    retriable = True


class SerializerTimeout(SerializerUnavailable, TimeoutError):
    """An async serializer did not finish within `max_block_ms`."""


class RecordTooLarge(ProducerError):
    """The record exceeds `max_request_size`, `buffer_memory` or (`MessageTooLarge`) the broker's limit."""


class BufferFull(ProducerError):
    """`send_nowait` found too little free `buffer_memory`, or earlier calls waiting for memory."""

    retriable = True


class BufferTimeout(ProducerError, TimeoutError):
    """`buffer_memory` had no room for the record within `max_block_ms`."""

    retriable = True


class MetadataUnavailable(ProducerError):
    """`send_nowait` has no metadata of the topic yet; the producer has requested the metadata."""

    retriable = True


class MetadataTimeout(ProducerError, TimeoutError):
    """The topic's metadata did not arrive within `max_block_ms`."""

    retriable = True


class TimeoutReason(enum.StrEnum):
    """Obstacle of a record at its deadline: the value of `DeliveryTimeout.reason`."""

    THROTTLED = "throttled"
    """The leader is throttling this client (a broker quota)."""
    IN_FLIGHT_LIMIT = "in_flight_limit"
    """Earlier requests or batches await their responses; `max_in_flight_requests_per_connection` are in flight."""
    NO_LEADER = "no_leader"
    """The partition has no leader."""
    CONNECTING = "connecting"
    """The leader is not connected; for requests to any broker, no broker is connected."""
    AUTHENTICATION = "authentication"
    """The leader refused the credentials or the certificate, or authentication is in progress."""
    PRODUCER_ID = "producer_id"
    """No broker has assigned a producer id (idempotence)."""
    TRANSACTION = "transaction"
    """The transaction coordinator has not added the partition yet."""
    BACKING_OFF = "backing_off"
    """The batch waited for its retry backoff, or (`linger_ms`) for more records."""
    NO_ANSWER = "no_answer"
    """The leader has not responded to the request."""
    LOOP_BLOCKED = "loop_blocked"
    """The event loop did not run."""


class DeliveryTimeout(ProducerError, TimeoutError):
    """The record was not acknowledged within its delivery timeout (or the call's `timeout_s`)."""

    retriable = True

    def __init__(
        self,
        message: str = "",
        *,
        possibly_persisted: bool = False,
        reason: TimeoutReason = TimeoutReason.NO_ANSWER,  # copies and pickles pass only the message
    ) -> None:
        super().__init__(message, possibly_persisted=possibly_persisted)
        self.reason = reason
        """Obstacle at the deadline, a `TimeoutReason`; the message has the details."""


class ProducerClosed(ProducerError):
    """The producer is not started or is closed, or was closed before it sent the record."""


class RecordPurged(ProducerError):
    """`purge()` dropped the record before it was sent."""

    retriable = True


class ConnectionFailed(ProducerError):
    """A connection failed, was lost, or was closed because a response was late.

    `written` is False if no byte of the request reached the socket.
    """

    retriable = True

    def __init__(self, message: str = "", *, possibly_persisted: bool = False, written: bool = True) -> None:
        super().__init__(message, possibly_persisted=possibly_persisted)
        self.written = written


class AuthenticationFailed(ProducerError):
    """The broker refused the credentials, or the broker's identity (for example, its certificate) could not be verified.

    The `__cause__` is the underlying error, if any. The error is not `fatal`: a running producer retries, because
    credentials and certificates can be fixed without a restart.
    """

    held_back: bool = False
    """True if the producer skipped this broker, because another broker had just refused the same credentials."""

    def __init__(
        self, message: str = "", *, broker: str = "", mechanism: str = "", possibly_persisted: bool = False
    ) -> None:
        super().__init__(message, possibly_persisted=possibly_persisted)
        self.broker = broker
        """The broker's `host:port` as configured; "" if the failure concerns no single broker."""
        self.mechanism = mechanism
        """The SASL mechanism; "" if TLS failed."""


class ProtocolError(ProducerError):
    """The peer sent bytes that do not follow Kafka's protocol; the connection is closed."""

    retriable = True


class WrongLoop(ProducerError, RuntimeError):
    """The producer was used outside the event loop, thread or process that started it."""


class TransactionStateError(ProducerError, RuntimeError):
    """The transaction's state does not allow the call, for example `commit` without `begin`."""


class TransactionAborted(ProducerError):
    """The record's transaction was aborted before the acknowledgement; consumers with read_committed skip the record."""


class CommitFailed(ProducerError):
    """The transaction was not committed: one of its records failed, awaited or not, or its offsets were refused.

    The first failure is the `__cause__`. Abort the transaction and repeat the work. After a rebalance of the group,
    other consumers may own the partitions.
    """

    abortable = True


class TransactionTimeout(ProducerError, TimeoutError):
    """A call timed out before the coordinator was asked to end the transaction. Abort the transaction."""

    abortable = True


class TransactionOutcomeUnknown(ProducerError, TimeoutError):
    """A commit or abort timed out before the coordinator confirmed the end; the transaction may have ended.

    Repeat the call to wait for the confirmation.
    """


class TransactionLost(ProducerError):
    """The transaction and its records are aborted: the transaction timed out, or another producer ended the transaction."""
