"""Log lines of the driver about a batch."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from array import array
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import TaskContext

from aioproducer._core.metrics import Traffic
from aioproducer.spark.messages import (
    LISTED,
    BadRows,
    TaskReport,
    log_aborted,
    log_committed,
    origin,
)
from tests.cases import for_each

NOTHING = " name=- execution=- retries=0 throttle_ms=0 compression_rate=- partitions=0 offsets=-"


def report(query_id: str | None = None) -> TaskReport:
    return TaskReport(query_id, rows=10, bytes=1_000)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "aioproducer.spark")
    return caplog


def test_committed_batch_is_one_line(said: pytest.LogCaptureFixture) -> None:
    log_committed([report(), report()])
    assert said.messages == [f"spark.batch.committed query=- batch=- rows=20 bytes=2000 tasks=2{NOTHING}"]


def test_micro_batch_is_logged_with_query_and_number(said: pytest.LogCaptureFixture) -> None:
    log_committed([report("8d9f"), report("8d9f")], 0)
    assert said.messages == ["spark.batch.committed query=8d9f batch=0 rows=20 bytes=2000 tasks=2" + NOTHING]


def test_aborted_batch_is_logged_with_its_written_rows(said: pytest.LogCaptureFixture) -> None:
    log_aborted([None, report("8d9f"), None], 3)
    assert said.messages == ["spark.batch.aborted query=8d9f batch=3 rows=10 bytes=1000 tasks=1" + NOTHING]
    assert said.records[0].levelno == logging.WARNING


def test_dead_letters_are_a_warning_with_how_many_and_why(said: pytest.LogCaptureFixture) -> None:
    bad = [TaskReport("8d9f", 10, 1_000, bad=BadRows(rows, "dead", f"reason {rows}")) for rows in (2, 3)]
    log_committed([report("8d9f"), None, *bad], 3)
    assert said.messages == [
        "spark.batch.committed query=8d9f batch=3 rows=30 bytes=3000 tasks=3" + NOTHING,
        'spark.batch.bad_rows query=8d9f batch=3 rows=5 topic=dead reason="reason 2"',
    ]
    assert said.records[1].levelno == logging.WARNING


def written(*partitions: int, first: int = 0, last: int = 9, **more: Any) -> TaskReport:
    offsets = {"orders": array("q", [number for each in partitions for number in (each, first, last)])}
    return TaskReport("8d9f", 10, 1_000, partitions=len(partitions), offsets=offsets, **more)


def test_numbers_of_tasks_add_up_in_line(said: pytest.LogCaptureFixture) -> None:
    one = written(0, 2, traffic=Traffic(3, 40, 500, 1_000), name="orders to kafka", execution="12")
    other = written(2, first=7, last=30, traffic=Traffic(1, 2, 100, 1_000))
    log_committed([one, other], 4)
    assert said.messages[0].endswith(
        ' tasks=2 name="orders to kafka" execution=12 retries=4 throttle_ms=42 compression_rate=0.3'
        " partitions=2 offsets=orders-0:0-9,orders-2:0-30"
    )


def test_unknown_offsets_are_left_out(said: pytest.LogCaptureFixture) -> None:
    log_committed([written(0, first=-1, last=-1)], 0)
    assert said.messages[0].endswith(" partitions=1 offsets=-")


@pytest.mark.parametrize(
    ("reports", "partitions", "listed"),
    [
        ([written(*range(LISTED))], LISTED, True),
        ([written(*range(60)), written(*range(40, LISTED))], LISTED, True),
        ([written(*range(60)), written(*range(60, LISTED + 1))], LISTED + 1, False),
        ([written(0), TaskReport("8d9f", 10, 1_000, partitions=1_000)], 1_000, False),
    ],
)
def test_offsets_are_listed_up_to_a_bound(
    said: pytest.LogCaptureFixture, reports: list[TaskReport], partitions: int, listed: bool
) -> None:
    log_committed(reports, 0)
    assert f" partitions={partitions} offsets=" in said.messages[0]
    assert said.messages[0].endswith("offsets=-") != listed
    assert len(said.messages[0]) < 3_000


@for_each(
    ("description", "query", "name"),
    [
        ("orders<br/>id = 8d9f<br/>runId = 1<br/>batch = 0", "8d9f", "orders"),
        ("orders\nid = 8d9f\nrunId = 1\nbatch = 0", "8d9f", "orders"),
        ("id = 8d9f\nrunId = 1\nbatch = 0", "8d9f", ""),
        ("id = 8d9f<br/>runId = 1<br/>batch = 0", "8d9f", ""),
        (None, "8d9f", ""),
        (None, None, ""),
        ("nightly export", None, "nightly export"),
        ("x" * 1_000, None, "x" * 100),
        ("Spark Connect - session_id: 1 plan { }", None, ""),
    ],
)
def test_name_is_read_from_description_of_job(description: str | None, query: str | None, name: str) -> None:
    properties = {
        "spark.job.description": description,
        "sql.streaming.queryId": query,
        "streaming.sql.batchId": "7",
        "spark.sql.execution.id": "12",
    }
    told = origin(cast("TaskContext", SimpleNamespace(getLocalProperty=properties.get)))
    assert told == {"query_id": query, "name": name, "number": "7", "execution": "12"}


def test_batch_in_foreach_batch_has_its_number(said: pytest.LogCaptureFixture) -> None:
    log_committed([TaskReport("8d9f", 10, 1_000, number="7")])
    assert said.messages[0].startswith("spark.batch.committed query=8d9f batch=7 ")


@pytest.mark.parametrize(
    ("configuration", "line"),
    [
        ("", r"20\d\d-.* INFO aioproducer\.spark: spark\.batch\.committed .*"),
        ("logging.getLogger().addHandler(logging.StreamHandler())", r"spark\.batch\.committed .*"),
        ("logging.getLogger('aioproducer.spark').setLevel('WARNING')", ""),
    ],
    ids=["nobody", "a handler, as Spark has one", "a level"],
)
def test_line_is_logged_once_with_any_logging_configuration(configuration: str, line: str) -> None:
    program = f"import logging\n{configuration}\n"
    program += "from aioproducer.spark.messages import log_committed\nlog_committed([])"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert re.fullmatch(line, output.stderr.decode().strip())


def test_times_that_nothing_checked_are_one_warning(said: pytest.LogCaptureFixture) -> None:
    report = TaskReport("8d9f", 10, 1_000, unchecked=("orders", "TopicAuthorizationFailed: no"))
    for batch in range(2):
        log_committed([report, None, report], batch)
    warned = [each.message for each in said.records if each.levelno == logging.WARNING]
    assert warned == ['spark.timestamps.unchecked topic=orders error="TopicAuthorizationFailed: no"']
