"""Import time and time to the first acknowledged record: the median of several short processes.

Users run byte code that was compiled when the packages were installed. Here, a first run of each client compiles the
byte code into a separate folder, independent of the environment's settings and of file permissions.
"""

from __future__ import annotations

import time
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.figures import Run
from benchmarks.parent.process import answer_of
from benchmarks.parent.topics import Topics
from benchmarks.settings import PARTITIONS

CHILD: Final = "benchmarks.child.cold"
TIMES: Final = 5


def measure(client: str, topics: Topics, name: str) -> Run:
    """Return a client's figures, after a check that the topic has every first record."""
    with TemporaryDirectory() as compiled, topics.fresh(name, PARTITIONS) as topic:
        variables = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        sending = [client, topics.servers, topic]
        answer_of(CHILD, sending, variables)
        imports = [float(answer_of(CHILD, [client], variables)) for _ in range(TIMES)]
        firsts = []
        for _ in range(TIMES):
            began_at = time.monotonic()
            firsts.append(float(answer_of(CHILD, sending, variables)) - began_at)
        topics.check(topic, PARTITIONS, sent=1 + TIMES)
    return Run(
        sent=1 + TIMES, figures={"import_ms": median(imports) * 1000, "first_ms": median(firsts) * 1000}
    )
