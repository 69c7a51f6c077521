"""What the driver says of a batch."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

import pytest

from aioproducer.spark.messages import BadRows, TaskReport, log_aborted, log_committed, log_source_option


def report(query_id: str | None = None) -> TaskReport:
    return TaskReport(query_id, rows=10, bytes=1_000)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "aioproducer.spark")
    return caplog


def test_a_batch_that_is_written_is_one_line(said: pytest.LogCaptureFixture) -> None:
    log_committed([report(), report()])
    assert said.messages == ["spark.batch.committed query=- batch=- rows=20 bytes=2000 tasks=2"]


def test_a_micro_batch_has_its_query_and_its_number(said: pytest.LogCaptureFixture) -> None:
    log_committed([report("8d9f"), report("8d9f")], 0)
    assert said.messages == ["spark.batch.committed query=8d9f batch=0 rows=20 bytes=2000 tasks=2"]


def test_of_a_batch_that_failed_what_is_written_is_said(said: pytest.LogCaptureFixture) -> None:
    log_aborted([None, report("8d9f"), None], 3)
    assert said.messages == ["spark.batch.aborted query=8d9f batch=3 rows=10 bytes=1000 tasks=1"]
    assert said.records[0].levelno == logging.WARNING


def test_dead_letters_are_a_warning_with_how_many_and_why(said: pytest.LogCaptureFixture) -> None:
    bad = [TaskReport("8d9f", 10, 1_000, bad=BadRows(rows, "dead", f"reason {rows}")) for rows in (2, 3)]
    log_committed([report("8d9f"), None, *bad], 3)
    assert said.messages == [
        "spark.batch.committed query=8d9f batch=3 rows=30 bytes=3000 tasks=3",
        "spark.batch.bad_rows query=8d9f batch=3 rows=5 topic='dead' reason='reason 2'",
    ]
    assert said.records[1].levelno == logging.WARNING


def test_an_option_that_does_nothing_is_a_warning(said: pytest.LogCaptureFixture) -> None:
    log_source_option("startingOffsets")
    assert said.messages == ["spark.source_option.without_effect name=startingOffsets"]
    assert said.records[0].levelno == logging.WARNING


@pytest.mark.parametrize(
    ("configuration", "line"),
    [
        ("", r"20\d\d-.* INFO aioproducer\.spark: spark\.batch\.committed .*"),
        ("logging.getLogger().addHandler(logging.StreamHandler())", r"spark\.batch\.committed .*"),
        ("logging.getLogger('aioproducer.spark').setLevel('WARNING')", ""),
    ],
    ids=["nobody", "a handler, as Spark has one", "a level"],
)
def test_the_line_is_said_once_however_logging_is_configured(configuration: str, line: str) -> None:
    program = f"import logging\n{configuration}\n"
    program += "from aioproducer.spark.messages import log_committed\nlog_committed([])"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert re.fullmatch(line, output.stderr.decode().strip())


def test_times_that_nothing_checked_are_one_warning(said: pytest.LogCaptureFixture) -> None:
    report = TaskReport("8d9f", 10, 1_000, unchecked="topic='orders' error=TopicAuthorizationFailed: no")
    for batch in range(2):
        log_committed([report, None, report], batch)
    warned = [each.message for each in said.records if each.levelno == logging.WARNING]
    assert warned == [f"spark.timestamps.unchecked {report.unchecked}"]
