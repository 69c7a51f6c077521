"""Everything that `aioproducer` raises, in one place to import from."""

from __future__ import annotations

from aioproducer.errors import broker_errors
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
    SerializerUnavailable,
    WrongLoop,
)
from aioproducer.errors.broker_errors import *  # noqa: F403 - one class per error code, listed in broker.__all__
from aioproducer.errors.send_many import SendManyError

__all__ = [
    "AuthenticationFailed",
    "BufferFull",
    "BufferTimeout",
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
    "SerializerUnavailable",
    "WrongLoop",
]
__all__ += broker_errors.__all__
