from __future__ import annotations

import pytest

from benchmarks.scale.shapes import Point, Shape


@pytest.mark.parametrize(
    ("what", "shape", "size", "active"),
    [
        ("partitions", Shape.TEN, 1_000, 10),
        ("partitions", Shape.ALL, 1_000, 1_000),
        ("topics", Shape.TEN, 1, 1),
        ("topics", Shape.TEN, 50, 10),
        ("topics", Shape.SINGLE, 50, 50),
    ],
)
def test_how_many_partitions_are_active(what: str, shape: Shape, size: int, active: int) -> None:
    point = Point(what, shape, size)
    assert sum(point.topics.values()) == size
    assert len(set(point.active)) == active
    assert {topic for topic, _ in point.active} <= set(point.topics)


def test_every_size_gets_as_many_records_and_each_partition_a_batch_at_least() -> None:
    assert Point("partitions", Shape.ALL, 10).rounds() == 100
    assert Point("partitions", Shape.ALL, 10_000).rounds() == 1
    assert Point("partitions", Shape.TEN, 10_000).rounds() == 100
    assert Point("partitions", Shape.SINGLE, 10).rounds() == 2_000
    assert Point("partitions", Shape.ALL, 10).rounds(1_001) == 2
