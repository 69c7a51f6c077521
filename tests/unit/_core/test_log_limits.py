from __future__ import annotations

import asyncio
import logging

import pytest

from aioproducer._core.log_limits import MAX_EPISODES, OTHERS, REMINDER_S, STEADY_S, LogLimits, Subject
from aioproducer._core.logfmt import Pairs
from aioproducer._core.steps import Log
from aioproducer.testing import in_virtual_time

logger = logging.getLogger("aioproducer.tests.limits")
log = Log(logger.name)


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger.name)


def occur(limits: LogLimits, subject: Subject = "", level: int = logging.WARNING) -> None:
    limits.log(log, level, subject, "disk.full free=%d", 7)


def recover(limits: LogLimits, subject: Subject = "") -> bool:
    return limits.over("disk.full", subject, "disk.recovered free=%d", 99)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    lines = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == logger.name]
    caplog.clear()
    return lines


@in_virtual_time
async def test_repeated_event_is_logged_first_every_30_s_and_at_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = LogLimits()
    for _ in range(700):
        occur(limits)
        await asyncio.sleep(0.1)
    await asyncio.sleep(REMINDER_S)
    assert told(caplog) == [
        ("WARNING", "disk.full free=7"),
        ("WARNING", "disk.full free=7 times=301 for_s=30.0"),
        ("WARNING", "disk.full free=7 times=601 for_s=60.0"),
        ("INFO", "disk.full.ended times=700 for_s=69.9"),
    ]
    occur(limits)
    assert told(caplog) == [("WARNING", "disk.full free=7")]
    limits.close()


@in_virtual_time
async def test_single_event_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    limits = LogLimits()
    occur(limits, Pairs(topic="a"))
    await asyncio.sleep(2 * REMINDER_S)
    limits.close()
    assert told(caplog) == [("WARNING", "disk.full free=7")]


@in_virtual_time
async def test_recovery_is_logged_once_with_counts(caplog: pytest.LogCaptureFixture) -> None:
    limits = LogLimits()
    assert not recover(limits)
    for _ in range(3):
        occur(limits)
        await asyncio.sleep(1)
    assert [recover(limits), recover(limits)] == [True, False]
    await asyncio.sleep(2 * REMINDER_S)
    assert told(caplog) == [
        ("WARNING", "disk.full free=7"),
        ("INFO", "disk.recovered free=99 times=3 for_s=3.0"),
    ]


@in_virtual_time
async def test_event_that_returns_after_a_recovery_is_news(caplog: pytest.LogCaptureFixture) -> None:
    limits = LogLimits()
    for _ in range(3):
        occur(limits)
        recover(limits)
        await asyncio.sleep(40)
    assert [level for level, _ in told(caplog)] == ["WARNING", "INFO"] * 3


@in_virtual_time
async def test_flapping_event_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    limits = LogLimits()
    for _ in range(6_000):
        occur(limits)
        recover(limits)
        await asyncio.sleep(0.01)
    await asyncio.sleep(STEADY_S)
    assert told(caplog) == [
        ("WARNING", "disk.full free=7"),
        ("INFO", "disk.recovered free=99 times=1 for_s=0.0"),
        ("WARNING", "disk.full free=7 times=3001 for_s=30.0"),
        ("INFO", "disk.recovered free=99 times=6000 for_s=60.0"),
    ]


@in_virtual_time
async def test_slowly_flapping_event_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    limits = LogLimits()
    for _ in range(300):
        occur(limits)
        recover(limits)
        await asyncio.sleep(2 * STEADY_S)
    lines = [level for level, _ in told(caplog)]
    assert lines.count("WARNING") <= 600 / REMINDER_S + 6
    assert lines.count("INFO") <= 600 / REMINDER_S + 6


@in_virtual_time
async def test_higher_level_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    limits = LogLimits()
    for level in (logging.INFO, logging.INFO, logging.WARNING, logging.INFO, logging.WARNING):
        occur(limits, level=level)
    limits.close()
    assert told(caplog) == [
        ("INFO", "disk.full free=7"),
        ("WARNING", "disk.full free=7 times=3 for_s=0.0"),
        ("INFO", "disk.full.ended times=5 for_s=0.0"),
    ]


@in_virtual_time
async def test_subjects_are_limited_separately_up_to_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    limits = LogLimits()
    for number in range(1_000):
        occur(limits, Pairs(topic=number % 500))
    assert len(told(caplog)) == MAX_EPISODES + 1
    await asyncio.sleep(REMINDER_S)
    ends = told(caplog)
    assert len(ends) == MAX_EPISODES + 1
    assert ends[0] == ("INFO", "disk.full.ended topic=0 times=2 for_s=0.0")
    assert ends[-1] == ("INFO", f"disk.full.ended {OTHERS} times=960 for_s=0.0")
    assert not limits._episodes


@in_virtual_time
async def test_close_logs_counts_and_sets_no_timer(caplog: pytest.LogCaptureFixture) -> None:
    limits = LogLimits()
    for _ in range(3):
        occur(limits)
    limits.close()
    occur(limits)
    assert [text for _, text in told(caplog)] == [
        "disk.full free=7",
        "disk.full.ended times=3 for_s=0.0",
        "disk.full free=7",
    ]
    await asyncio.sleep(2 * REMINDER_S)
    assert not told(caplog)


@in_virtual_time
async def test_suppressed_lines_are_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger.name)
    limits = LogLimits()
    for _ in range(2):
        occur(limits)
        recover(limits)
    limits.close()
    assert [level for level, _ in told(caplog)] == ["WARNING", "INFO", "DEBUG", "DEBUG", "INFO"]


@in_virtual_time
async def test_handler_may_log_the_same_event(caplog: pytest.LogCaptureFixture) -> None:
    limits = LogLimits()

    class Again(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.INFO:
                occur(limits)

    handler = Again()
    logger.addHandler(handler)
    try:
        occur(limits)
        await asyncio.sleep(REMINDER_S)
    finally:
        logger.removeHandler(handler)
        limits.close()
    texts = ["disk.full free=7", "disk.full.ended times=2 for_s=0.0"]
    assert sorted(text for _, text in told(caplog)) == sorted(texts * 2)


def test_event_without_a_loop_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    limits = LogLimits()
    for _ in range(3):
        occur(limits)
    assert [level for level, _ in told(caplog)] == ["WARNING"]
