"""Log handlers, callbacks and interceptors that raise: no record is lost, and the producer continues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aioproducer import ProducerError
from aioproducer.errors import MessageTooLarge, NotLeaderOrFollower
from aioproducer.testing.virtual_time import VirtualTimeLoop
from tests.scenarios.rig import TOPIC, producing, scenario

ERRORS = (LookupError, RecursionError, asyncio.CancelledError, GeneratorExit)


class Raises(logging.Handler):
    """Raises from each log line, without the protection that handlers of the standard library have."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__(logging.DEBUG)
        self._error = error
        self.times = 0

    def handle(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("aioproducer.testing"):
            return True
        self.times += 1
        raise self._error("handler")


@contextmanager
def broken_log(error: type[BaseException]) -> Iterator[Raises]:
    logger, handler = logging.getLogger("aioproducer"), Raises(error)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@pytest.mark.parametrize("error", ERRORS)
@scenario
async def test_records_have_outcomes_when_each_log_line_raises(
    error: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    with broken_log(error) as handler:
        options: dict[str, Any] = {"delivery_timeout_ms": 2_000, "request_timeout_ms": 1_000}
        async with producing(brokers=2, partitions=6, **options) as (producer, cluster):
            cluster.on("produce", topic=TOPIC, times=1).answer(NotLeaderOrFollower)
            cluster.on("produce", topic=TOPIC, times=1, after=1).answer(MessageTooLarge)
            cluster.on("metadata", times=1).close()
            sent = [producer.send_nowait(TOPIC, b"v", partition=each % 6) for each in range(60)]
            await asyncio.gather(*sent)
            cluster.disconnect(1)
            for node in (1, 2):
                await cluster.stop_broker(node)
            late = [producer.send_nowait(TOPIC, b"v", partition=each % 6) for each in range(60)]
            done, pending = await asyncio.wait(late, timeout=4)
            assert not pending
            assert all(isinstance(each.exception(), ProducerError) for each in done)
            for node in (1, 2):
                await cluster.start_broker(node)
            assert (await producer.send(TOPIC, b"next")).offset >= 0
            assert producer.state == "ready"
    assert handler.times > 5
    assert f"{error.__name__}: handler" in capsys.readouterr().err


class Interrupts:
    """Raises once, when the second record of a batch has its outcome."""

    def __init__(self, interrupt: type[BaseException]) -> None:
        self._interrupt = interrupt
        self.heard = 0

    def on_acknowledgement(self, *_: object) -> None:
        self.heard += 1
        if self.heard == 2:
            raise self._interrupt("callback")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_of_an_interceptor_is_raised_by_the_event_loop(interrupt: type[BaseException]) -> None:
    raised = _run_interrupted(interrupt, interceptors=[Interrupts(interrupt)])
    assert raised == 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_of_a_log_handler_is_raised_by_the_event_loop(interrupt: type[BaseException]) -> None:
    with broken_log(interrupt) as handler:
        assert _run_interrupted(interrupt) == handler.times


def _run_interrupted(interrupt: type[BaseException], **options: Any) -> int:
    """Send records on a loop that goes on after each interrupt, as in a notebook; return the number of interrupts."""

    async def main() -> None:
        async with producing(partitions=2, linger_ms=10, **options) as (producer, cluster):
            cluster.on("produce", topic=TOPIC, times=1).answer(NotLeaderOrFollower)
            sent = [producer.send_nowait(TOPIC, b"v", partition=each % 2) for each in range(20)]
            await asyncio.gather(*sent)
            assert (await producer.send(TOPIC, b"next")).offset >= 0
            assert producer.state == "ready"

    loop = VirtualTimeLoop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(main())
    interrupts = 0
    try:
        while not task.done():
            try:
                loop.run_until_complete(task)
            except interrupt:
                interrupts += 1
                assert interrupts < 100
        task.result()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return interrupts
