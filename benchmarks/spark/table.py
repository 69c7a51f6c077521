"""Rows of the Spark benchmark: jobs, sinks and targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from benchmarks.row import Row, Target
from benchmarks.settings import Settings, Tuning, Work

OURS: Final = "aioproducer"
SPARKS: Final = "kafka"
SINKS: Final = (OURS, SPARKS)
"""Sinks by their names in `format(…)`."""
IDLE: Final = "python-idle"
"""Python sink that discards all rows (`idle_sink.py`). Its micro-batches show Spark's own overhead for a Python
sink."""
AT_LEAST_ONCE: Final = "at-least-once"
SINGLE: Final = "exactly-once-single"
LOG: Final = "exactly-once"
GUARANTEES: Final = (AT_LEAST_ONCE, SINGLE, LOG)
"""Values of `deliveryGuarantee` of aioproducer's sink."""

ROWS: Final = 1_000_000
MICRO_BATCHES: Final = 30
WARM_UP_BATCHES: Final = 10
"""Number of micro-batches in the warm-up of a query."""
LARGE_MICRO_BATCHES: Final = 15
MICRO_BATCH_ROWS: Final = 100_000
TASKS: Final = 4
"""Tasks of a micro-batch with several tasks."""


def _rate(tuning: Tuning, must: float | None, goal: float | None) -> Target:
    """Return the target for a row's rate relative to Spark's sink."""
    return Target(tuning=tuning, figure="records_s", ours=OURS, against=SPARKS, must=must, goal=goal)


def _batch(name: str, title: str, settings: Settings, must: float | None, goal: float | None) -> Row:
    """Return a row that writes a cached DataFrame with each sink's default options."""
    return Row(
        name=name,
        title=f"a DataFrame {title}",
        settings=replace(settings, tuning=Tuning.DEFAULTS),
        clients=SINKS,
        targets=(_rate(Tuning.DEFAULTS, must, goal),),
        lasts=3,
    )


def _tuned(row: Row, must: float | None, goal: float, *extra: Target) -> Row:
    """Return *row* with batches of 256 KiB and a linger of 20 ms for both sinks."""
    settings = replace(row.settings, tuning=Tuning.EQUAL, linger_ms=20, batch_bytes=256 * 1024)
    targets = (_rate(Tuning.EQUAL, must, goal), *extra)
    return replace(
        row, name=f"tuned-{row.name}", title=f"{row.title}, tuned", settings=settings, targets=targets
    )


_VALUES: Final = Settings(work=Work.BULK)
_KEYS: Final = replace(_VALUES, keys=True)
KEYS: Final = _batch("batch", "with keys", _KEYS, 1.4, 1.5)
VALUES: Final = _batch("batch-values", "of values", _VALUES, 1.6, 1.8)
HEADERS: Final = _batch("batch-headers", "with keys and 2 headers", replace(_KEYS, headers=True), 1.2, 1.3)
ONE_PARTITION: Final = _batch("batch-one-partition", "with keys in one Spark partition", _KEYS, 0.73, 1)
"""A skewed DataFrame: one task writes all rows."""
BATCHES: Final = (
    KEYS,
    VALUES,
    HEADERS,
    _batch("batch-zstd", "with keys, zstd", replace(_KEYS, compression="zstd"), 2.3, 2.5),
    _batch("batch-lz4", "with keys, lz4", replace(_KEYS, compression="lz4"), None, 1.3),
    _batch(
        "batch-1k", "of 1 KiB rows with keys", replace(_KEYS, value_bytes=1_024, records=300_000), None, 1.2
    ),
    ONE_PARTITION,
    _tuned(KEYS, 1.07, 1.25),
    _tuned(VALUES, None, 1.4),
    _tuned(
        HEADERS,
        None,
        1.2,
        Target(tuning=Tuning.EQUAL, figure="cpu_us", ours=OURS, against=SPARKS, goal=0.8),
    ),
)
STREAM: Final = Row(
    name="micro-batch",
    title="micro-batches of one row, without a pause",
    settings=Settings(work=Work.LONE, records=MICRO_BATCHES, tuning=Tuning.DEFAULTS),
    clients=(*SINKS, IDLE),
    targets=(Target(tuning=Tuning.DEFAULTS, figure="p50_ms", ours=OURS, against=SPARKS, must=1.2, goal=1.1),),
    lasts=8,
)


def _exactly_once(guarantee: str, tasks: str) -> Row:
    """Return the row that compares a guarantee with at-least-once delivery, in micro-batches with an equal number of tasks."""
    return Row(
        name=guarantee,
        title=f"micro-batches of {MICRO_BATCH_ROWS:,} rows in {tasks}",
        settings=Settings(work=Work.BULK, records=LARGE_MICRO_BATCHES, keys=True, tuning=Tuning.DEFAULTS),
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
    "python_us": "Python µs/row",
    "p50_ms": "micro-batch ms",
    "sink_ms": "write ms",
}
"""Heading of each figure. The figures are medians over the rounds."""
