"""OTLP's MetricsData, read: metrics with numbers for values, as clients push them. What else there is, is passed over."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from aioproducer.errors import ProtocolError

MetricKind: TypeAlias = Literal["gauge", "delta", "cumulative", "unspecified"]
_DOUBLE: Final = struct.Struct("<d")
_GAUGE, _SUM = 5, 7
_TEMPORALITY: Final[dict[object, MetricKind]] = {1: "delta", 2: "cumulative"}


class PushedMetric(NamedTuple):
    """One value of a metric that a client has pushed."""

    name: str
    kind: MetricKind
    """"delta" is what a counter has grown by since *start_ns*, "cumulative" all that it has counted."""
    value: float
    attributes: dict[str, str]
    start_ns: int
    """By the client's wall clock, as the next one; 0 of a gauge."""
    time_ns: int


def decode_metrics(data: bytes) -> tuple[list[PushedMetric], dict[str, str]]:
    """Return what is in *data*, and the attributes of the resources. Raises: ProtocolError, if it is something else."""
    try:
        of_resources = _messages(data, 1)
        points = [
            point
            for resource in of_resources
            for scope in _messages(resource, 2)
            for metric in _messages(scope, 2)
            for point in _points(metric)
        ]
        attributes = [
            _attribute(each)
            for of_resource in of_resources
            for resource in _messages(of_resource, 1)
            for each in _messages(resource, 1)
        ]
        return points, dict(attributes)
    except (ValueError, IndexError, struct.error) as error:
        raise ProtocolError(f"these are no metrics of OTLP: {error}") from error


def _points(metric: bytes) -> Iterator[PushedMetric]:
    [name] = _messages(metric, 1)
    for number in (_GAUGE, _SUM):
        for content in _messages(metric, number):
            temporality = next((value for field, value in _fields(content) if field == 2), None)
            kind: MetricKind = "gauge" if number == _GAUGE else _TEMPORALITY.get(temporality, "unspecified")
            for point in _messages(content, 1):
                yield _point(name.decode(), kind, point)


def _point(name: str, kind: MetricKind, data: bytes) -> PushedMetric:
    start_ns = time_ns = 0
    value, attributes = 0.0, {}
    for number, content in _fields(data):
        if number == 2:
            start_ns = int.from_bytes(_bytes(content), "little")
        elif number == 3:
            time_ns = int.from_bytes(_bytes(content), "little")
        elif number == 4:
            (value,) = _DOUBLE.unpack(_bytes(content))
        elif number == 6:
            value = int.from_bytes(_bytes(content), "little", signed=True)
        elif number == 7:
            key, text = _attribute(_bytes(content))
            attributes[key] = text
    return PushedMetric(name, kind, value, attributes, start_ns, time_ns)


def _attribute(data: bytes) -> tuple[str, str]:
    """Read a KeyValue; a value that is no string is ""."""
    [key], [value] = _messages(data, 1), _messages(data, 2)
    return key.decode(), b"".join(_messages(value, 1)).decode()


def _messages(data: bytes, number: int) -> list[bytes]:
    """Return what field *number* has: messages, strings or bytes."""
    return [_bytes(content) for field, content in _fields(data) if field == number]


def _bytes(content: bytes | int) -> bytes:
    if isinstance(content, int):
        raise ValueError("a number stands where there should be none")  # noqa: TRY004 - remote input, not a call
    return content


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield number and content of each field: an int of a varint, else its bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            content, at = _varint(data, at)
            yield tag >> 3, content
            continue
        size = {1: 8, 5: 4}.get(tag & 7)
        if size is None:
            if tag & 7 != 2:
                raise ValueError(f"wire type {tag & 7}")
            size, at = _varint(data, at)
        if at + size > len(data):
            raise ValueError("it is cut")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a varint is too long")
