"""The user's serializers, called for a record; what they raise becomes a SerializationError that says where."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from aioproducer.errors import SerializationError, SerializerUnavailable
from aioproducer.intake.checks import as_bytes, as_headers
from aioproducer.serializers import AnySerializer, HeaderList, Serialized, Serializer
from aioproducer.types import Headers


def serialized(
    field: str, serializer: Serializer | None, topic: str, data: Any, position: int | None = None
) -> bytes | None:
    """Return *data*, the key or value of a record, as the user's serializer makes it bytes.

    *position* is the record's in a `send_many`. Raises: SerializationError.
    """
    if serializer is None:
        return as_bytes(field, data)
    try:
        return as_bytes(f"what {field}_serializer returned", serializer(data))
    except Exception as error:
        raise _refused(field, topic, data, position, error) from error


class Contents(NamedTuple):
    """What serializers make of a record."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class InContext:
    """Both serializers of a producer, at least one of which sees topic and headers."""

    def __init__(self, key_serializer: AnySerializer | None, value_serializer: AnySerializer | None) -> None:
        self._key_serializer = _taking_all(key_serializer)
        self._value_serializer = _taking_all(value_serializer)

    def __call__(
        self, topic: str, headers: Headers, key: Any, value: Any, position: int | None = None
    ) -> Contents:
        """Return key and value as bytes, and the headers with what was added to them. Raises: SerializationError."""
        shared: HeaderList = list(headers)
        of_key, of_value = (
            None if each is None else partial(each, topic, shared)
            for each in (self._key_serializer, self._value_serializer)
        )
        key = serialized("key", of_key, topic, key, position)
        value = serialized("value", of_value, topic, value, position)
        try:
            if tuple(shared) != headers:
                headers = as_headers("what serializers made of the headers", shared)
        except Exception as error:  # to compare what they have put there may raise anything
            raise SerializationError(f"{_record(topic, position)}: {error}") from error
        return Contents(key, value, headers)


def in_context(
    key_serializer: AnySerializer | None, value_serializer: AnySerializer | None
) -> InContext | None:
    """Return the two as one, if any of them sees topic and headers."""
    if hasattr(key_serializer, "serialize") or hasattr(value_serializer, "serialize"):
        return InContext(key_serializer, value_serializer)
    return None


def _taking_all(serializer: Any) -> Callable[[str, HeaderList, Any], Serialized] | None:
    if serializer is None:
        return None
    if hasattr(serializer, "serialize"):
        method: Callable[[str, HeaderList, Any], Serialized] = serializer.serialize
        return method
    return lambda _topic, _headers, value: serializer(value)


def _refused(field: str, topic: str, data: Any, position: int | None, error: Exception) -> SerializationError:
    kind = SerializerUnavailable if isinstance(error, ConnectionError | TimeoutError) else SerializationError
    return kind(
        f"the {field} of {_record(topic, position)} ({type(data).__name__}) could not be serialized:"
        f" {type(error).__name__}: {error}"
    )


def _record(topic: str, position: int | None) -> str:
    return f"a record for {topic!r}" if position is None else f"record {position} for {topic!r}"
