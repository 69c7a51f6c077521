"""The receiver of client metrics (KIP-714): subscriptions, pushes, and decoding of OTLP."""

from __future__ import annotations

import asyncio
import itertools
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from aioproducer import errors
from aioproducer._core.protocol.client import GetTelemetrySubscriptionsResponse, PushTelemetryRequest
from aioproducer._core.records.compression import Codec, decompress
from aioproducer.errors import ProtocolError
from aioproducer.testing.faults import Refused

MetricKind: TypeAlias = Literal["gauge", "delta", "cumulative", "unspecified"]
_DOUBLE: Final = struct.Struct("<d")
_GAUGE, _SUM = 5, 7
_TEMPORALITY: Final[dict[object, MetricKind]] = {1: "delta", 2: "cumulative"}


class PushedMetric(NamedTuple):
    """One value of a pushed metric."""

    name: str
    kind: MetricKind
    """"delta": increase of a counter since *start_ns*; "cumulative": its total."""
    value: float
    attributes: dict[str, str]
    start_ns: int
    """Start of the interval by the client's wall clock, in ns; 0 for a gauge."""
    time_ns: int


def decode_metrics(data: bytes) -> tuple[list[PushedMetric], dict[str, str]]:
    """Return the numeric metrics in OTLP's MetricsData, and the attributes of its resources. Raises: ProtocolError."""
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
        raise ProtocolError(f"invalid metrics of OTLP: {error}") from error


def _points(metric: bytes) -> Iterator[PushedMetric]:
    [name] = _messages(metric, 1)
    for number in (_GAUGE, _SUM):
        for content in _messages(metric, number):
            temporality = next((value for field, value in _fields(content) if field == 2), None)
            kind: MetricKind = "gauge" if number == _GAUGE else _TEMPORALITY.get(temporality, "unspecified")
            for point in _messages(content, 1):
                yield _point(name.decode(), kind, point)


def _point(name: str, kind: MetricKind, data: bytes) -> PushedMetric:
    fields = {number: _bytes(content) for number, content in _fields(data) if number in {2, 3, 4, 6, 7}}
    start_ns, time_ns = (int.from_bytes(fields.get(number, b""), "little") for number in (2, 3))
    if 4 in fields:
        (value,) = _DOUBLE.unpack(fields[4])
    else:
        value = int.from_bytes(fields.get(6, b""), "little", signed=True)
    attributes = dict(map(_attribute, _messages(data, 7)))
    return PushedMetric(name, kind, value, attributes, start_ns, time_ns)


def _attribute(data: bytes) -> tuple[str, str]:
    """Return key and value of a KeyValue; "" for a value of another type than string."""
    [key], [value] = _messages(data, 1), _messages(data, 2)
    return key.decode(), b"".join(_messages(value, 1)).decode()


def _messages(data: bytes, number: int) -> list[bytes]:
    """Return the contents of field *number*: messages, strings or bytes."""
    return [_bytes(content) for field, content in _fields(data) if field == number]


def _bytes(content: bytes | int) -> bytes:
    if isinstance(content, int):
        raise ValueError("unexpected varint")  # noqa: TRY004 - remote input, not a call
    return content


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield number and content of each field: an int for a varint, otherwise bytes."""
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
            raise ValueError("truncated field")
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


UnknownSubscriptionId: Final = errors.broker_error(117)
TelemetryTooLarge: Final = errors.broker_error(118)
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024


class MetricsSubscription(NamedTuple):
    """A subscription to client metrics."""

    prefixes: tuple[str, ...]
    push_interval_s: float
    is_delta: bool
    codecs: tuple[Codec, ...]
    max_bytes: int


class MetricsPushed(NamedTuple):
    """One push of a client."""

    client_instance_id: uuid.UUID
    terminating: bool
    """True for the last push of a closing client."""
    codec: Codec
    metrics: list[PushedMetric]
    resource: dict[str, str]
    """Resource attributes of OTLP, which describe the client, such as `transactional_id`."""


@dataclass(slots=True)
class _Instance:
    subscription_id: int = 0
    pushed_at: float | None = None
    is_terminating: bool = False


@dataclass(slots=True)
class TelemetryReceiver:
    """Receiver of all nodes. Without a subscription brokers behave as without a telemetry plugin."""

    subscription: MetricsSubscription | None = None
    pushed: list[MetricsPushed] = field(default_factory=list)
    _subscription_id: int = 0
    _instances: dict[bytes, _Instance] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def subscribe(self, subscription: MetricsSubscription) -> None:
        """Replace the subscription, which gets a new id."""
        self.subscription = subscription
        self._subscription_id = next(self._ids)

    def describe(self, client_instance_id: bytes) -> GetTelemetrySubscriptionsResponse:
        """Return the subscription of a client, with a new instance id if the client has no id. Raises: Refused."""
        subscription = self._subscribed()
        if not any(client_instance_id):
            client_instance_id = uuid.uuid4().bytes
        self._instances.setdefault(client_instance_id, _Instance()).subscription_id = self._subscription_id
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=client_instance_id,
            subscription_id=self._subscription_id,
            accepted_compression_types=tuple(map(int, subscription.codecs)),
            push_interval_ms=round(subscription.push_interval_s * 1000),
            telemetry_max_bytes=subscription.max_bytes,
            delta_temporality=subscription.is_delta,
            requested_metrics=list(subscription.prefixes),
        )

    def take(self, push: PushTelemetryRequest) -> None:
        """Record a push. Raises: Refused, by Kafka's checks in their order."""
        subscription, now = self._subscribed(), asyncio.get_running_loop().time()
        instance = self._instances.get(push.client_instance_id)
        if instance is None or instance.is_terminating:
            raise Refused(errors.InvalidRequest, "the client instance id is unknown or terminated")
        too_early = instance.pushed_at is not None and now < instance.pushed_at + subscription.push_interval_s
        if too_early and not push.terminating:
            raise Refused(errors.ThrottlingQuotaExceeded, "it is too early for another push")
        if push.subscription_id != self._subscription_id:
            raise Refused(UnknownSubscriptionId, "the subscription has changed")
        if push.compression_type and push.compression_type not in subscription.codecs:
            raise Refused(
                errors.UnsupportedCompressionType, f"codec {push.compression_type} was not accepted"
            )
        if len(push.metrics) > subscription.max_bytes:
            raise Refused(
                TelemetryTooLarge, f"{len(push.metrics)} bytes are more than {subscription.max_bytes}"
            )
        codec = Codec(push.compression_type)
        try:
            metrics, resource = decode_metrics(decompress(codec, push.metrics, limit=MAX_DECOMPRESSED_BYTES))
        except ProtocolError as error:
            raise Refused(errors.InvalidRecord, str(error)) from error
        instance.pushed_at, instance.is_terminating = now, push.terminating
        whose = uuid.UUID(bytes=push.client_instance_id)
        self.pushed.append(MetricsPushed(whose, push.terminating, codec, metrics, resource))

    def _subscribed(self) -> MetricsSubscription:
        if self.subscription is None:
            raise Refused(errors.UnsupportedVersion, "no receiver of client metrics is configured")
        return self.subscription


def codecs(names: Sequence[str]) -> tuple[Codec, ...]:
    """Return the codecs named *names*. Raises: ValueError."""
    known = {str(each): each for each in Codec}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"compression types are {', '.join(known)}, not {', '.join(map(repr, unknown))}")
    return tuple(known[name] for name in names)
