"""Everything that `aioproducer` raises, in one place to import from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproducer.errors import broker_errors, coordinator_errors
from aioproducer.errors.base import (
    AuthenticationFailed,
    BufferFull,
    BufferTimeout,
    ConfigError,
    ConnectionFailed,
    DeliveryTimeout,
    MetadataTimeout,
    MetadataUnavailable,
    ProducerClosed,
    ProducerError,
    ProtocolError,
    RecordPurged,
    RecordTooLarge,
    SerializationError,
    SerializerTimeout,
    SerializerUnavailable,
    TimeoutReason as TimeoutReason,  # no error, so not in __all__
    WrongLoop,
)
from aioproducer.errors.broker_errors import *  # noqa: F403 - one class per error code, listed in its __all__
from aioproducer.errors.coordinator_errors import *  # noqa: F403 - likewise
from aioproducer.errors.error_codes import BrokerError, broker_error
from aioproducer.errors.transaction_errors import (
    CommitFailed,
    TransactionAborted,
    TransactionLost,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
)

if TYPE_CHECKING:
    from aioproducer.errors.send_many import SendManyError as SendManyError

__all__ = [
    "AuthenticationFailed",
    "BrokerError",
    "BufferFull",
    "BufferTimeout",
    "CommitFailed",
    "ConfigError",
    "ConnectionFailed",
    "DeliveryTimeout",
    "MetadataTimeout",
    "MetadataUnavailable",
    "ProducerClosed",
    "ProducerError",
    "ProtocolError",
    "RecordPurged",
    "RecordTooLarge",
    "SendManyError",
    "SerializationError",
    "SerializerTimeout",
    "SerializerUnavailable",
    "TransactionAborted",
    "TransactionLost",
    "TransactionOutcomeUnknown",
    "TransactionStateError",
    "TransactionTimeout",
    "WrongLoop",
    "broker_error",
]
__all__ += broker_errors.__all__ + coordinator_errors.__all__


def __getattr__(name: str) -> Any:
    """Import the error of `send_many`, with the result that it carries, when somebody asks for it."""
    if name != "SendManyError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aioproducer.errors.send_many import SendManyError  # noqa: PLC0415 - most have no use for it

    globals()[name] = SendManyError  # asked once
    return SendManyError
