"""Import time and the first acknowledged record: many short processes, of which the median counts."""

from __future__ import annotations

import time
from statistics import median
from typing import Final

from benchmarks.figures import Run
from benchmarks.parent.process import answer_of
from benchmarks.parent.topics import Topics
from benchmarks.settings import PARTITIONS

CHILD: Final = "benchmarks.child.cold"
TIMES: Final = 5


def measure(client: str, topics: Topics, name: str) -> Run:
    """Return a client's figures; every first record is looked for in its topic."""
    answer_of(CHILD, [client])  # compiles what was not compiled before
    imports = [float(answer_of(CHILD, [client])) for _ in range(TIMES)]
    firsts = []
    with topics.fresh(name, PARTITIONS) as topic:
        for _ in range(TIMES):
            began_at = time.monotonic()
            firsts.append(float(answer_of(CHILD, [client, topics.servers, topic])) - began_at)
        topics.check(topic, PARTITIONS, sent=TIMES)
    return Run(sent=TIMES, figures={"import_ms": median(imports) * 1000, "first_ms": median(firsts) * 1000})
