"""The errors that do not come from a broker's answer.

Every error says two things that a caller has to know before sending again:

- `possibly_persisted`: may the record be in the log all the same? False is a promise.
- `retriable`: may sending the same record again, later, succeed?

And two more to who uses transactions (KIP-1050): `abortable` and `fatal`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

DOCS_URL: Final = ""
"""Where the documentation is served, with a slash at its end. Empty: what `docs_url` says is relative to that."""
PAGE: Final = "reliability.html"
OURS: Final = __name__.rpartition(".")[0] + "."
UNNAMED: Final = "ErrorCode"
"""How the names of codes begin that this release has no name for."""


class ProducerError(Exception):
    """Base of all errors of this package."""

    retriable: bool = False
    """May sending the same record again, later, succeed?"""
    abortable: bool = False
    """Is the transaction lost, and the producer not? Abort it; then the producer goes on."""
    fatal: bool = False
    """Is this the end of the producer, so that only a new one goes on? Retries and healing are not for it."""
    _is_of_record: bool = False
    """True if a broker refused this very record for its content."""

    def __init__(self, message: str = "", *, possibly_persisted: bool = False) -> None:
        super().__init__(message)
        self.possibly_persisted = possibly_persisted
        """May the record be in the log all the same? False is a promise."""

    @property
    def docs_url(self) -> str:
        """The place in the documentation that says when this error comes, and what to do."""
        documented = (
            each.__name__
            for each in type(self).__mro__
            if each.__module__.startswith(OURS) and not each.__name__.startswith(UNNAMED)
        )
        return f"{DOCS_URL}{PAGE}#{next(documented)}"


class ConfigError(ProducerError, ValueError):
    """An option is unknown, out of range, or contradicts another."""


class SerializationError(ProducerError):
    """A serializer raised, or returned something that is not bytes; its error is the `__cause__`."""


class SerializerUnavailable(SerializationError):
    """A serializer raised a ConnectionError or TimeoutError: what it asks, say a schema registry, was out of reach."""

    retriable = True


class SerializerTimeout(SerializerUnavailable, TimeoutError):
    """`max_block_ms` ran out while the call waited for an async serializer."""


class RecordTooLarge(ProducerError):
    """The record is larger than `max_request_size` or `buffer_memory`, or (`MessageTooLarge`) than the broker takes."""


class BufferFull(ProducerError):
    """`send_nowait` found too little free `buffer_memory`, or earlier calls waiting for memory."""

    retriable = True


class BufferTimeout(ProducerError, TimeoutError):
    """`max_block_ms` ran out while waiting for room in `buffer_memory`."""

    retriable = True


class MetadataUnavailable(ProducerError):
    """`send_nowait` does not know the topic yet; it has been asked for."""

    retriable = True


class MetadataTimeout(ProducerError, TimeoutError):
    """`max_block_ms` ran out before the topic's partitions were known."""

    retriable = True


class TimeoutReason(StrEnum):
    """Obstacle that a record met at its deadline: the value of `DeliveryTimeout.reason`."""

    THROTTLED = "throttled"
    """The leader is throttling this client (a broker quota)."""
    IN_FLIGHT_LIMIT = "in_flight_limit"
    """Earlier requests or batches await their responses; `max_in_flight_requests_per_connection` are in flight."""
    NO_LEADER = "no_leader"
    """The partition has no leader."""
    CONNECTING = "connecting"
    """The leader is not connected; for requests to any broker, no broker is connected."""
    AUTHENTICATION = "authentication"
    """The leader refuses the login or the certificate, or a login is under way."""
    PRODUCER_ID = "producer_id"
    """No broker has assigned a producer id (idempotence)."""
    TRANSACTION = "transaction"
    """The transaction coordinator has not added the partition yet."""
    BACKING_OFF = "backing_off"
    """The batch was waiting for its next attempt after a failure, or (`linger_ms`) for more records."""
    NO_ANSWER = "no_answer"
    """The leader has not answered the request."""
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
        reason: TimeoutReason = TimeoutReason.NO_ANSWER,
    ) -> None:
        super().__init__(message, possibly_persisted=possibly_persisted)
        self.reason = reason
        """Obstacle at the deadline, a `TimeoutReason`; the message has the details."""


class ProducerClosed(ProducerError):
    """The producer was not started yet, is closed, or was closed before the record was sent."""


class RecordPurged(ProducerError):
    """`purge()` dropped the record before it was sent."""

    retriable = True


class ConnectionFailed(ProducerError):
    """A connection could not be made, was lost, or was closed because an answer did not come in time.

    `written` is False if not one byte of the request in question reached the socket.
    """

    retriable = True

    def __init__(self, message: str = "", *, possibly_persisted: bool = False, written: bool = True) -> None:
        super().__init__(message, possibly_persisted=possibly_persisted)
        self.written = written


class AuthenticationFailed(ProducerError):
    """The broker refused our credentials, or did not prove who it is: a certificate that does not verify, say.

    The message says what was wrong and what to do; what was caught, if anything, is the `__cause__`. A producer that
    is running tries again: credentials and certificates may be mended without a restart, so it is not `fatal`.
    """

    held_back: bool = False
    """True if this broker was not asked, because another broker had refused the same login shortly before."""

    def __init__(
        self, message: str = "", *, broker: str = "", mechanism: str = "", possibly_persisted: bool = False
    ) -> None:
        super().__init__(message, possibly_persisted=possibly_persisted)
        self.broker = broker
        """The broker's `host:port`, as it was given; "" if the failure is not about one of them."""
        self.mechanism = mechanism
        """The SASL mechanism; "" if TLS failed."""


class ProtocolError(ProducerError):
    """The peer sent bytes that do not follow Kafka's protocol; the connection is closed."""

    retriable = True


class WrongLoop(ProducerError, RuntimeError):
    """The producer was used from another event loop, thread or process than the one it was started in."""
