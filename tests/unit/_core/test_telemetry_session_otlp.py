from __future__ import annotations

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from aioproducer._core.telemetry_session import Kind, Point, encode
from aioproducer.version import __version__

START_NS, NOW_NS = 1_700_000_000_000_000_000, 1_700_000_060_000_000_000


def decoded(*points: Point, resource: dict[str, str] | None = None) -> MetricsData:
    data = MetricsData()
    data.ParseFromString(encode(points, resource or {}, now_ns=NOW_NS))
    return data


def test_gauge_is_encoded() -> None:
    data = decoded(Point("a.b", Kind.GAUGE, 1.5, {"topic": "orders", "ä": "ö"}))
    [metric] = data.resource_metrics[0].scope_metrics[0].metrics
    [point] = metric.gauge.data_points
    assert (metric.name, metric.WhichOneof("data")) == ("a.b", "gauge")
    assert (point.time_unix_nano, point.as_double) == (NOW_NS, 1.5)
    assert {each.key: each.value.string_value for each in point.attributes} == {"topic": "orders", "ä": "ö"}


def test_sums_of_either_temporality() -> None:
    data = decoded(Point("d", Kind.DELTA, 3, {}, START_NS), Point("c", Kind.CUMULATIVE, 1e300, {}))
    delta, cumulative = data.resource_metrics[0].scope_metrics[0].metrics
    assert delta.sum.is_monotonic
    assert cumulative.sum.is_monotonic
    assert delta.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    assert cumulative.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert [point.as_double for each in (delta, cumulative) for point in each.sum.data_points] == [3.0, 1e300]
    [point] = delta.sum.data_points
    assert (point.start_time_unix_nano, point.time_unix_nano) == (START_NS, NOW_NS)


def test_points_of_one_metric_are_together_wherever_they_stand() -> None:
    points = [
        Point(name, Kind.GAUGE, n, {"n": str(n)}) for n, name in enumerate(["a", "b", "a", "b" * 200, "a"])
    ]
    data = decoded(*points)
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    assert [each.name for each in metrics] == ["a", "b", "b" * 200]
    assert [point.as_double for point in metrics[0].gauge.data_points] == [0, 2, 4]


def test_resource_and_scope_identify_the_client() -> None:
    data = decoded(Point("a", Kind.GAUGE, 0, {}), resource={"transactional_id": "t-1"})
    [resource] = data.resource_metrics
    assert [(each.key, each.value.string_value) for each in resource.resource.attributes] == [
        ("transactional_id", "t-1")
    ]
    [scope] = resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("aioproducer", __version__)


def test_points_are_empty_when_no_metric_is_reported() -> None:
    assert not decoded().resource_metrics[0].scope_metrics[0].metrics
