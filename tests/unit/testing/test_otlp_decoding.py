from __future__ import annotations

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from aioproducer.errors import ProtocolError
from aioproducer.testing.otlp_decoding import PushedMetric, decode_metrics

HOST = KeyValue(key="host", value=AnyValue(string_value="a"))
COUNT = KeyValue(key="count", value=AnyValue(int_value=3))


def written() -> MetricsData:
    """Return what OpenTelemetry's own classes make, with things in it that no producer of ours writes."""
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


def test_it_reads_what_opentelemetry_writes() -> None:
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


def test_half_of_it_is_refused_wherever_it_is_cut() -> None:
    data = written().SerializeToString()
    for end in range(1, len(data)):
        with pytest.raises(ProtocolError, match="no metrics of OTLP"):
            decode_metrics(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        b"\x0b",  # a group begins
        b"\x08\x01",  # a number for a message
        b"\xff" * 20,  # a varint without an end
        b"\x0a\x06\x12\x04\x12\x02\x28\x00",  # a metric without a name
    ],
)
def test_what_is_something_else_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="no metrics of OTLP"):
        decode_metrics(data)
