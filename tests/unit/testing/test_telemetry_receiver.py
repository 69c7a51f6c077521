from __future__ import annotations

import uuid

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from aioproducer._core.protocol.client import PushTelemetryRequest
from aioproducer._core.records.compression import Codec, compressor
from aioproducer._core.telemetry_session import Kind, Point, encode
from aioproducer.errors import ProtocolError
from aioproducer.testing.faults import Refused
from aioproducer.testing.telemetry_receiver import (
    MetricsSubscription,
    PushedMetric,
    TelemetryReceiver,
    codecs,
    decode_metrics,
)
from tests.cases import for_each

HOST = KeyValue(key="host", value=AnyValue(string_value="a"))
COUNT = KeyValue(key="count", value=AnyValue(int_value=3))


def written() -> MetricsData:
    """Return a message of OpenTelemetry's own classes, with fields that `Producer` never writes."""
    data = MetricsData()
    resource = data.resource_metrics.add(schema_url="s" * 300)
    resource.resource.attributes.append(HOST)
    scope = resource.scope_metrics.add()
    scope.scope.name = "x"
    gauge = scope.metrics.add(name="gauge", unit="ms").gauge.data_points.add(time_unix_nano=2**63, as_int=-5)
    gauge.attributes.extend([HOST, COUNT])
    total = scope.metrics.add(name="sum").sum
    total.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    total.data_points.add(start_time_unix_nano=1, time_unix_nano=2, as_double=0.5)
    total.data_points.add(time_unix_nano=3)
    scope.metrics.add(name="histogram").histogram.data_points.add(count=1)
    scope.metrics.add(name="unsaid").sum.data_points.add(as_double=1)
    return data


def test_decode_metrics_reads_opentelemetry() -> None:
    assert decode_metrics(written().SerializeToString()) == (
        [
            PushedMetric("gauge", "gauge", -5, {"host": "a", "count": ""}, 0, 2**63),
            PushedMetric("sum", "cumulative", 0.5, {}, 1, 2),
            PushedMetric("sum", "cumulative", 0.0, {}, 0, 3),
            PushedMetric("unsaid", "unspecified", 1.0, {}, 0, 0),
        ],
        {"host": "a"},
    )
    assert decode_metrics(b"") == ([], {})


def test_decode_metrics_refuses_cut_data() -> None:
    data = written().SerializeToString()
    for end in range(1, len(data)):
        with pytest.raises(ProtocolError, match="invalid metrics of OTLP"):
            decode_metrics(data[:end])


@for_each(
    "data",
    [
        b"\x0b",  # a group begins
        b"\x08\x01",  # a number for a message
        b"\xff" * 20,  # a varint without an end
        b"\x0a\x06\x12\x04\x12\x02\x28\x00",  # a metric without a name
    ],
)
def test_decode_metrics_refuses_other_data(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="invalid metrics of OTLP"):
        decode_metrics(data)


METRICS = encode([Point("a", Kind.GAUGE, 1.5, {})], {}, now_ns=1)
INVALID_REQUEST, UNSUPPORTED_VERSION, UNSUPPORTED_CODEC, INVALID_RECORD = 42, 35, 76, 87
THROTTLED, UNKNOWN_SUBSCRIPTION, TOO_LARGE = 89, 117, 118


@pytest.fixture
def receiver() -> TelemetryReceiver:
    receiver = TelemetryReceiver()
    receiver.subscribe(MetricsSubscription(("a",), 60.0, True, (Codec.ZSTD,), 1_000))
    return receiver


def push(receiver: TelemetryReceiver, **how: object) -> PushTelemetryRequest:
    """Return the push request of a client with the current subscription."""
    told = receiver.describe(bytes(16))
    request = PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=told.subscription_id,
        terminating=False,
        compression_type=0,
        metrics=METRICS,
    )
    for name, value in how.items():
        setattr(request, name, value)
    return request


async def refusal(receiver: TelemetryReceiver, request: PushTelemetryRequest) -> int:
    with pytest.raises(Refused) as caught:
        receiver.take(request)
    return caught.value.code


def test_receiver_refuses_without_subscription() -> None:
    with pytest.raises(Refused) as caught:
        TelemetryReceiver().describe(bytes(16))
    assert caught.value.code == UNSUPPORTED_VERSION


def test_client_keeps_the_id_that_it_got(receiver: TelemetryReceiver) -> None:
    told = receiver.describe(bytes(16))
    assert any(told.client_instance_id)
    assert receiver.describe(told.client_instance_id).client_instance_id == told.client_instance_id
    assert receiver.describe(bytes(16)).client_instance_id != told.client_instance_id
    assert (told.push_interval_ms, told.telemetry_max_bytes, told.delta_temporality) == (60_000, 1_000, True)
    assert (told.accepted_compression_types, told.requested_metrics) == ((4,), ["a"])


async def test_push_is_decoded(receiver: TelemetryReceiver) -> None:
    metrics = compressor(Codec.ZSTD, None)(METRICS)
    request = push(receiver, compression_type=4, metrics=metrics, terminating=True)
    receiver.take(request)
    [pushed] = receiver.pushed
    assert pushed.client_instance_id == uuid.UUID(bytes=request.client_instance_id)
    assert (pushed.terminating, pushed.codec, pushed.resource) == (True, Codec.ZSTD, {})
    assert [(each.name, each.value) for each in pushed.metrics] == [("a", 1.5)]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"client_instance_id": b"x" * 16}, INVALID_REQUEST),
        ({"subscription_id": 99}, UNKNOWN_SUBSCRIPTION),
        ({"compression_type": 1}, UNSUPPORTED_CODEC),
        ({"metrics": b"x" * 1_001}, TOO_LARGE),
        ({"metrics": b"\xff" * 20}, INVALID_RECORD),
        ({"compression_type": 4}, INVALID_RECORD),
    ],
)
async def test_malformed_push_is_refused(
    receiver: TelemetryReceiver, how: dict[str, object], code: int
) -> None:
    assert await refusal(receiver, push(receiver, **how)) == code
    assert receiver.pushed == []


async def test_client_pushes_once_per_interval_and_at_close(
    receiver: TelemetryReceiver,
) -> None:
    request = push(receiver)
    receiver.take(request)
    assert await refusal(receiver, request) == THROTTLED
    request.terminating = True
    receiver.take(request)
    assert await refusal(receiver, request) == INVALID_REQUEST


async def test_new_subscription_makes_the_one_before_unknown(receiver: TelemetryReceiver) -> None:
    request = push(receiver)
    receiver.subscribe(MetricsSubscription(("a",), 60.0, True, (), 1_000))
    assert await refusal(receiver, request) == UNKNOWN_SUBSCRIPTION


def test_codecs_have_kafkas_names() -> None:
    assert codecs(["zstd", "none"]) == (Codec.ZSTD, Codec.NONE)
    with pytest.raises(ValueError, match=r"compression types are .*zstd, not 'no-such-codec'"):
        codecs(["zstd", "no-such-codec"])
