"""A curve of scale: our producer in a process of its own, at one size after the other, against the in-process broker.

Other processes make CPU time dearer, for seconds, by as much as the half; nothing makes it cheaper. So all sizes have
several turns, and the cheapest of each counts: a machine that is busy now and then is not a cost that grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from aioproducer.testing import ThreadedCluster
from benchmarks.figures import Run
from benchmarks.parent.process import answer_of
from benchmarks.parent.topics import check_count, stored
from benchmarks.scale.shapes import Point, Shape
from benchmarks.summary import growth

CHILD: Final = "benchmarks.scale.child"
TURNS: Final = 5


def measure(name: str, sizes: Sequence[int], least_records: int = 0) -> Run:
    """Return the curve of the row *name*, such as `scale-topics-all`, and by how much the cost grows along it."""
    _, what, shape = name.split("-")
    run = Run()
    costs = dict.fromkeys(sizes, math.inf)
    for _ in range(TURNS):
        for size in sizes:
            told = _measure_at(Point(what, Shape(shape), size), least_records)
            run.sent += told.sent
            costs[size] = min(costs[size], told.figures["cpu_us"])
    run.series.extend(costs.items())
    run.figures["growth"] = growth([cost for size, cost in costs.items() if size >= Shape(shape).counts_from])
    return run


def _measure_at(point: Point, least_records: int) -> Run:
    with ThreadedCluster(topics=point.topics) as cluster:
        arguments = [cluster.bootstrap_servers, point.what, point.shape, str(point.size), str(least_records)]
        told = Run.loads(answer_of(CHILD, arguments))
        check_count(told.sent, stored(cluster.bootstrap_servers, point.active))
    return told
