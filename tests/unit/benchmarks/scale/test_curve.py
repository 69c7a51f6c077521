from __future__ import annotations

import pytest

from aioproducer.testing import ThreadedCluster
from benchmarks.figures import Run
from benchmarks.parent.topics import stored
from benchmarks.scale import curve
from benchmarks.scale.child import measure
from benchmarks.scale.shapes import Point, Shape


@pytest.mark.parametrize("shape", Shape)
async def test_batches_have_the_records_of_their_shape(kafka_cluster: ThreadedCluster, shape: Shape) -> None:
    point = Point("topics", shape, 3)
    for topic in point.topics:
        kafka_cluster.create_topic(topic, 1)
    run = await measure(kafka_cluster.bootstrap_servers, point, 300)
    assert run.sent == stored(kafka_cluster.bootstrap_servers, point.active)
    batches = [batch for target in point.active for batch in kafka_cluster.batches(*target)]
    assert {len(batch.records) for batch in batches} == {point.records_a_batch}


@pytest.mark.slow
def test_curve_has_a_point_per_size() -> None:
    run = curve.measure("scale-partitions-ten", (10, 20), least_records=1_000)
    assert [size for size, _ in run.series] == [10, 20]
    assert all(cost > 0 for _, cost in run.series)
    assert run.figures["growth"] >= 1
    assert run.sent == curve.TURNS * 2 * 1_100


@pytest.mark.parametrize(("shape", "expected"), [("all", 6.0), ("single", 1.5)])
def test_growth_of_one_record_a_batch_counts_from_100(
    shape: str, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = {1: 1.0, 10: 2.0, 100: 4.0, 5_000: 6.0}

    def measured(point: Point, least_records: int) -> Run:
        return Run(sent=1, figures={"cpu_us": costs[point.size]})

    monkeypatch.setattr(curve, "_measure_at", measured)
    assert curve.measure(f"scale-topics-{shape}", list(costs)).figures["growth"] == expected
