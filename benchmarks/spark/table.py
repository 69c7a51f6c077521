"""What is measured on Spark, of which sinks, and what is to come of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from benchmarks.row import Row, Target
from benchmarks.settings import Settings, Tuning, Work

OURS: Final = "aioproducer"
SPARKS: Final = "kafka"
SINKS: Final = (OURS, SPARKS)
"""By what stands in `format(…)`."""
IDLE: Final = "python-idle"
"""A sink in Python that writes nothing (`idle_sink.py`): what is left is Spark's, whose it is for any sink in Python."""
AT_LEAST_ONCE: Final = "at-least-once"
SINGLE: Final = "exactly-once-single"
LOG: Final = "exactly-once"
GUARANTEES: Final = (AT_LEAST_ONCE, SINGLE, LOG)
"""By what stands in `deliveryGuarantee`, of our sink."""

ROWS: Final = 1_000_000
MICRO_BATCHES: Final = 30
WARM_UP_BATCHES: Final = 10
"""A query starts slowly, whatever its sink is: so many micro-batches more are not counted."""
LARGE_MICRO_BATCHES: Final = 15
MICRO_BATCH_ROWS: Final = 100_000
TASKS: Final = 4
"""Of a micro-batch that is written by several."""


def _batch(name: str, title: str, settings: Settings, must: float | None, goal: float | None) -> Row:
    """Return the row that tells how fast a DataFrame of such records is written."""
    target = Target(
        tuning=Tuning.DEFAULTS, figure="records_s", ours=OURS, against=SPARKS, must=must, goal=goal
    )
    return Row(name=name, title=title, settings=settings, clients=SINKS, targets=(target,), lasts=3)


_BULK: Final = Settings(work=Work.BULK)
BATCHES: Final = (
    _batch("batch", "a DataFrame, cached, with keys", replace(_BULK, keys=True), 1.2, 1.5),
    _batch("batch-values", "a DataFrame, cached, of values alone", _BULK, None, 2),
    _batch(
        "batch-headers",
        "a DataFrame, cached, with keys and 2 headers",
        replace(_BULK, keys=True, headers=True),
        1.2,
        None,
    ),
)
STREAM: Final = Row(
    name="micro-batch",
    title="micro-batches of one row, as fast as they come",
    settings=Settings(work=Work.LONE, records=MICRO_BATCHES),
    clients=(*SINKS, IDLE),
    targets=(Target(tuning=Tuning.DEFAULTS, figure="p50_ms", ours=OURS, against=SPARKS, must=1.2),),
    lasts=8,
)


def _exactly_once(guarantee: str, tasks: str) -> Row:
    """Return the row that tells what a guarantee costs, in micro-batches of as many tasks without it."""
    return Row(
        name=guarantee,
        title=f"micro-batches of {MICRO_BATCH_ROWS:,} rows in {tasks}",
        settings=Settings(work=Work.BULK, records=LARGE_MICRO_BATCHES, keys=True),
        clients=(AT_LEAST_ONCE, guarantee),
        targets=(
            Target(
                tuning=Tuning.DEFAULTS,
                figure="p50_ms",
                ours=guarantee,
                against=AT_LEAST_ONCE,
                must=1.25,
                goal=1.1,
            ),
        ),
        lasts=12,
    )


ONE_TASK: Final = _exactly_once(SINGLE, "one task")
TASKS_EACH: Final = _exactly_once(LOG, f"{TASKS} tasks")
TABLE: Final = {row.name: row for row in (*BATCHES, STREAM, ONE_TASK, TASKS_EACH)}

COLUMNS: Final = {
    "records_s": "rows/s",
    "cpu_us": "CPU µs/row",
    "python_us": "of it Python",
    "p50_ms": "micro-batch ms",
    "sink_ms": "of it the write",
}
"""The figures of a run, and what they are called: medians over the rounds."""
