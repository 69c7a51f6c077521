from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import Callable

import pytest
import uvloop

from aioproducer._core.acceleration import accelerated
from aioproducer._core.clock import (
    PROCESS,
    python_running_loop_without_getpid,
    running_loop_of,
    running_loop_without_getpid,
)

Way = Callable[[asyncio.AbstractEventLoop], Callable[[], asyncio.AbstractEventLoop | None]]


def python(loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.AbstractEventLoop | None]:
    return python_running_loop_without_getpid(loop, PROCESS, asyncio.get_running_loop)


def fastest(loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.AbstractEventLoop | None]:
    return running_loop_without_getpid(loop, PROCESS, asyncio.get_running_loop)


WAYS: list[Way] = [running_loop_of, python, fastest]


def ask_no_one() -> asyncio.AbstractEventLoop:
    raise AssertionError("asyncio was asked")


def answer(running_loop: Callable[[], asyncio.AbstractEventLoop | None]) -> asyncio.AbstractEventLoop | None:
    try:
        return running_loop()
    except RuntimeError:
        return None


@pytest.mark.parametrize("way", WAYS)
class TestRunningLoop:
    async def test_running_loop_is_that_of_the_thread(self, way: Way) -> None:
        loop = asyncio.get_running_loop()
        assert way(loop)() is loop

    async def test_running_loop_differs_in_another_thread(self, way: Way) -> None:
        loop = asyncio.get_running_loop()
        running_loop = way(loop)

        async def elsewhere() -> asyncio.AbstractEventLoop | None:
            return answer(running_loop)

        assert await asyncio.to_thread(answer, running_loop) is None
        assert await asyncio.to_thread(asyncio.run, elsewhere()) is not loop

    def test_loop_that_ran_here_before_is_not_running(self, way: Way) -> None:
        with asyncio.Runner() as one, asyncio.Runner() as other:
            running_loop = way(one.get_loop())

            async def ask() -> asyncio.AbstractEventLoop | None:
                return answer(running_loop)

            assert one.run(ask()) is one.get_loop()
            assert other.run(ask()) is not one.get_loop()
            assert answer(running_loop) is None

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
    async def test_loop_of_the_parent_is_not_running_in_a_forked_child(self, way: Way) -> None:
        loop = asyncio.get_running_loop()
        running_loop = way(loop)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there may be other threads
            child = os.fork()
        if not child:
            os._exit(answer(running_loop) is loop)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert running_loop() is loop


class GuiLoop(asyncio.SelectorEventLoop):
    """Runs in an event loop of a GUI, as qasync's loop does: without `BaseEventLoop.run_forever`."""

    def run_forever(self) -> None:
        asyncio._set_running_loop(self)
        try:
            while not self._stopping:  # type: ignore[has-type]
                self._run_once()  # type: ignore[attr-defined]
        finally:
            self._stopping = False
            asyncio._set_running_loop(None)


@pytest.mark.parametrize("way", WAYS)
class TestOtherLoops:
    def test_loop_of_a_gui_runs_here(self, way: Way) -> None:
        with asyncio.Runner(loop_factory=GuiLoop) as runner:
            running_loop = way(runner.get_loop())

            async def ask() -> asyncio.AbstractEventLoop | None:
                return answer(running_loop)

            assert runner.run(ask()) is runner.get_loop()
            assert answer(running_loop) is None

    def test_loop_in_a_greenlet_runs_here(self, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
        """Under gevent asyncio notes the number of a greenlet, which no thread has."""
        monkeypatch.setattr("asyncio.base_events.threading.get_ident", lambda: 7)
        with asyncio.Runner() as runner:
            running_loop = way(runner.get_loop())

            async def ask() -> asyncio.AbstractEventLoop | None:
                return answer(running_loop)

            assert runner.run(ask()) is runner.get_loop()
            assert answer(running_loop) is None


@pytest.mark.parametrize("way", WAYS)
class TestUvloop:
    def test_uvloop_runs_here_only_while_it_runs(self, way: Way) -> None:
        with (
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as one,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as other,
        ):

            async def make() -> Callable[[], asyncio.AbstractEventLoop | None]:
                return way(one.get_loop())

            running_loop = one.run(make())

            async def ask() -> asyncio.AbstractEventLoop | None:
                return answer(running_loop)

            async def ask_in_thread() -> asyncio.AbstractEventLoop | None:
                return await asyncio.to_thread(answer, running_loop)

            assert one.run(ask()) is one.get_loop()
            assert one.run(ask_in_thread()) is None
            assert other.run(ask()) is other.get_loop()
            assert answer(running_loop) is None
            assert one.run(ask()) is one.get_loop()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
    def test_uvloop_does_not_run_in_a_forked_child(self, way: Way) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

            async def fork() -> int:
                loop = asyncio.get_running_loop()
                running_loop = way(loop)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # there may be other threads
                    child = os.fork()
                if not child:
                    os._exit(answer(running_loop) is loop)
                _, status = await asyncio.to_thread(os.waitpid, child, 0)
                return os.waitstatus_to_exitcode(status)

            assert runner.run(fork()) == 0


LOOPS = [asyncio.new_event_loop, GuiLoop, uvloop.new_event_loop]


async def test_python_finds_the_loop_without_asking_asyncio() -> None:
    loop = asyncio.get_running_loop()
    assert python_running_loop_without_getpid(loop, PROCESS, ask_no_one)() is loop


@pytest.mark.skipif(not accelerated, reason="the twin in Python asks for other loops than asyncio's")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio makes no system call there")
@pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "gui", "uvloop"])
def test_running_loop_is_found_without_asking_asyncio(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def find() -> bool:
        loop = asyncio.get_running_loop()
        return running_loop_without_getpid(loop, PROCESS, ask_no_one)() is loop

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(find())


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio makes no system call there")
async def test_running_loop_bypasses_asyncio_before_python_3_12() -> None:
    assert running_loop_of(asyncio.get_running_loop()) is not asyncio.get_running_loop
