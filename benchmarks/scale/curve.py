"""A curve of scale: aioproducer in child processes, at one size after the other, with an in-process broker.

Other processes raise the measured CPU time by up to 50 % for seconds. Therefore every size is measured several times,
and the lowest cost counts.
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
    """Return the curve of the row *name*, such as `scale-topics-all`, and its growth."""
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
