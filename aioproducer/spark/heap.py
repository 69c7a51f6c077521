"""The heap of Spark's Python processes, and the garbage collector that looks through it."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from typing import Final

DAEMON: Final = "pyspark.daemon"
"""The program that forks Spark's Python processes; each of them collects garbage after every request."""

TIMES: Final = 2
"""Behind its first answer a process imports pandas: pyarrow needs pandas to make an array of the report."""

_settled: Final[Counter[int]] = Counter()
"""Number of calls by process: this one, or one that it was forked from."""


def settle_heap() -> None:
    """Collect garbage and freeze the rest, in the first two calls in a Python process of Spark's.

    Most of the rest is imported modules. A search through them took 25 to 50 ms in three processes after every micro-batch.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.name != DAEMON or _settled[os.getpid()] == TIMES:
        return
    _settled[os.getpid()] += 1
    gc.collect()
    gc.freeze()
