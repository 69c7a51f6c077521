from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from aioproducer._core.steps import MOST_NESTED, Log, as_step, step_here

NAME = "aioproducer.tests.steps"
log = Log(NAME)


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, NAME)


@contextmanager
def in_step() -> Iterator[None]:
    step = step_here()
    outer, step.depth = step.depth, step.depth + 1
    try:
        yield
    finally:
        step.depth = outer
        step.run(int, 0)  # its end is the end of this step


def test_call_runs_at_once_outside_of_a_step() -> None:
    heard: list[int] = []
    step_here().call(heard.append, 1)
    assert heard == [1]


def test_calls_run_in_order_at_the_end_of_the_outermost_step() -> None:
    heard: list[int] = []
    with in_step():
        step_here().call(heard.append, 1)
        with in_step():
            step_here().call(heard.append, 2)
        assert heard == []
        as_step(step_here().call)(heard.append, 3)
        assert heard == []
    assert heard == [1, 2, 3]


def test_calls_run_also_when_the_step_raises() -> None:
    heard: list[int] = []

    @as_step
    def fails() -> None:
        step_here().call(heard.append, 1)
        raise LookupError

    with pytest.raises(LookupError):
        fails()
    assert heard == [1]


def test_step_of_a_call_ends_with_it() -> None:
    heard: list[str] = []

    def user_code() -> None:
        with in_step():
            step_here().call(heard.append, "inner")
        heard.append("outer")

    with in_step():
        step_here().call(user_code)
        step_here().call(heard.append, "next")
    assert heard == ["inner", "outer", "next"]


def test_step_of_one_thread_delays_no_call_of_another() -> None:
    heard: list[int] = []
    with in_step():
        thread = threading.Thread(target=lambda: step_here().call(heard.append, 1))
        thread.start()
        thread.join()
        assert heard == [1]


@pytest.mark.parametrize("error", [LookupError("no"), asyncio.CancelledError("no"), GeneratorExit("no")])
@pytest.mark.parametrize("in_step", [True, False])
def test_exception_of_a_call_is_printed(
    error: BaseException, in_step: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[int] = []

    def calls() -> None:
        step_here().call(_raises(error))
        step_here().call(heard.append, 1)

    (as_step(calls) if in_step else calls)()
    assert heard == [1]
    assert f"{type(error).__name__}: no" in capsys.readouterr().err


def test_exception_is_not_printed_if_logging_raises_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    step_here().call(_raises(LookupError()))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_of_a_call_is_raised_by_the_event_loop(interrupt: type[BaseException]) -> None:
    heard: list[int] = []

    async def main() -> None:
        with in_step():
            step_here().call(_raises(interrupt()))
            step_here().call(heard.append, 1)
        heard.append(2)
        await asyncio.sleep(1)

    loop = asyncio.new_event_loop()
    task = loop.create_task(main())
    with pytest.raises(interrupt):
        loop.run_until_complete(task)
    assert heard == [1, 2]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_interrupt_is_raised_at_once_without_an_event_loop() -> None:
    heard: list[int] = []

    @as_step
    def interrupted() -> None:
        step_here().call(_raises(KeyboardInterrupt()))
        step_here().call(heard.append, 1)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with in_step():
        assert heard == []
    assert heard == [1], "the end of the next step runs what is left"


def test_feedback_of_user_code_goes_on_in_the_event_loop() -> None:
    depths: list[int] = []

    def user_code() -> None:
        depths.append(step_here().nested)
        if len(depths) < 10 * MOST_NESTED:
            with in_step():
                step_here().call(user_code)

    async def main() -> None:
        with in_step():
            step_here().call(user_code)
        assert len(depths) == MOST_NESTED
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(depths) == 10 * MOST_NESTED

    asyncio.run(main())
    assert max(depths) <= MOST_NESTED
    assert step_here().nested == step_here().depth == 0


def test_line_of_the_log_is_that_of_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    methods: list[Callable[[str], None]] = [log.debug, log.info, log.warning, log.error, log.exception]
    for method in methods:
        method("event")
    log.log(logging.INFO, "event key=%d", 5)
    _on_behalf()
    assert {each.pathname for each in caplog.records} == {__file__}
    assert {each.funcName for each in caplog.records} == {"test_line_of_the_log_is_that_of_the_caller"}
    assert [each.levelname for each in caplog.records[:5]] == ["DEBUG", "INFO", "WARNING", "ERROR", "ERROR"]
    assert caplog.messages[5] == "event key=5"


def _on_behalf() -> None:
    log.log(logging.INFO, "event", stacklevel=2)


def test_handlers_run_at_the_end_of_the_step(caplog: pytest.LogCaptureFixture) -> None:
    with in_step():
        log.info("event")
        assert caplog.messages == []
    assert caplog.messages == ["event"]


def test_level_is_checked_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, NAME)
    log.info("event")
    assert caplog.messages == []


def test_exception_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    error = LookupError()
    try:
        raise error
    except LookupError:
        with in_step():
            log.exception("event")
    log.warning("event", exc_info=error)
    assert [each.exc_info and each.exc_info[1] for each in caplog.records] == [error] * 2


@pytest.mark.parametrize("in_step", [True, False])
def test_exception_of_a_handler_is_contained(
    in_step: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: logging.LogRecord) -> bool:
        raise LookupError("filter")

    logger = logging.getLogger(NAME)
    monkeypatch.setattr(logger, "filters", [broken])
    (as_step(log.info) if in_step else log.info)("event")
    assert "LookupError: filter" in capsys.readouterr().err


def test_broken_record_factory_stays_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(_raises(LookupError("factory")))
    try:
        log.info("event")
    finally:
        logging.setLogRecordFactory(before)
    assert "LookupError: factory" in capsys.readouterr().err


def _raises(error: BaseException) -> Callable[..., Any]:
    def user_code(*_: object, **__: object) -> None:
        raise error

    return user_code


def test_log_line_is_escaped(caplog: pytest.LogCaptureFixture) -> None:
    Log("aioproducer.test").warning(
        "event name=%s error=%s count=%d", "a\nCRITICAL forged", ValueError("\x1b[2J"), 3
    )
    assert caplog.messages == ['event name="a\\nCRITICAL forged" error="\\u001b[2J" count=3']


def test_signal_at_any_bytecode_of_a_step_leaves_no_step_open() -> None:
    """A depth above 0 would delay all user code forever."""

    class Interrupt(BaseException):
        pass

    def raise_at(number: int) -> Callable[..., Any]:
        left = number

        def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
            nonlocal left
            if not frame.f_code.co_filename.endswith("steps.py"):
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                left -= 1
                if not left:
                    sys.settrace(None)
                    raise Interrupt
            return trace

        return trace

    interrupted = 0
    for number in range(1, 200):
        before = sys.gettrace()
        try:
            sys.settrace(raise_at(number))
            step_here().run(list, ())
            as_step(list)()
        except Interrupt:
            interrupted += 1
        finally:
            sys.settrace(before)
        assert step_here().depth == step_here().nested == 0
    assert interrupted > 20
