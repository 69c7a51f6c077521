"""A curve of scale: our producer in a process of its own, at one size after the other, against the in-process broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aioproducer.testing import ThreadedCluster
from benchmarks.figures import Run
from benchmarks.parent.process import answer_of
from benchmarks.parent.topics import check_count, stored
from benchmarks.scale.shapes import Point, Shape
from benchmarks.summary import growth

CHILD: Final = "benchmarks.scale.child"


def measure(name: str, sizes: Sequence[int], least_records: int = 0) -> Run:
    """Return the curve of the row *name*, such as `scale-topics-all`, and by how much the cost grows along it."""
    _, what, shape = name.split("-")
    run = Run()
    for size in sizes:
        point = Point(what, Shape(shape), size)
        with ThreadedCluster(topics=point.topics) as cluster:
            arguments = [cluster.bootstrap_servers, what, shape, str(size), str(least_records)]
            told = Run.loads(answer_of(CHILD, arguments))
            check_count(told.sent, stored(cluster.bootstrap_servers, point.active))
        run.sent += told.sent
        run.series.append((size, told.figures["cpu_us"]))
    run.figures["growth"] = growth([cost for _, cost in run.series])
    return run
