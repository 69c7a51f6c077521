"""All errors of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproducer.errors import broker_errors
from aioproducer.errors.base import (
    AuthenticationFailed,
    BufferFull,
    BufferTimeout,
    CommitFailed,
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
    TimeoutReason as TimeoutReason,  # an enum, so not in __all__
    TransactionAborted,
    TransactionLost,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
    WrongLoop,
)
from aioproducer.errors.broker_errors import *  # noqa: F403 - a class per error code, listed in __all__
from aioproducer.errors.broker_errors import BrokerError, broker_error

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
__all__ += broker_errors.__all__


def __getattr__(name: str) -> Any:
    """Import `SendManyError`, with its result, at the first access."""
    if name != "SendManyError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aioproducer.errors.send_many import SendManyError  # noqa: PLC0415 - most programs do not use it

    globals()[name] = SendManyError
    return SendManyError
