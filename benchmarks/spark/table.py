"""What is measured on Spark, of which sinks, and what is to come of it."""

from __future__ import annotations

from typing import Final

from benchmarks.settings import Settings, Tuning, Work
from benchmarks.table import Row, Target

OURS: Final = "aioproducer"
SPARKS: Final = "kafka"
SINKS: Final = (OURS, SPARKS)
"""By what stands in `format(…)`."""

ROWS: Final = 1_000_000
MICRO_BATCHES: Final = 30
WARM_UP_BATCHES: Final = 10
"""A query starts slowly, whatever its sink is: so many micro-batches more are not counted."""

BATCH: Final = Row(
    name="batch",
    title="a DataFrame, cached, with keys",
    settings=Settings(work=Work.BULK, keys=True),
    clients=SINKS,
    targets=(
        Target(tuning=Tuning.DEFAULTS, figure="records_s", ours=OURS, against=SPARKS, must=0.9, goal=1.5),
    ),
    lasts=3,
)
STREAM: Final = Row(
    name="micro-batch",
    title="micro-batches of one row, as fast as they come",
    settings=Settings(work=Work.LONE, records=MICRO_BATCHES),
    clients=SINKS,
    targets=(Target(tuning=Tuning.DEFAULTS, figure="p50_ms", ours=OURS, against=SPARKS, must=1),),
    lasts=8,
)
TABLE: Final = {row.name: row for row in (BATCH, STREAM)}

COLUMNS: Final = {
    "records_s": "rows/s",
    "cpu_us": "CPU µs/row",
    "python_us": "of it Python",
    "p50_ms": "micro-batch ms",
    "sink_ms": "of it the write",
}
"""The figures of a run, and what they are called: medians over the rounds."""
