from __future__ import annotations

import asyncio
import os
import signal

import pytest

from aioproducer.cli.shell import on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_calls_and_the_handler_is_put_back(number: signal.Signals) -> None:
    def mine(*_: object) -> None:
        pytest.fail("it has not called")

    before, called = signal.signal(number, mine), asyncio.Event()  # the tests may run with one ignored
    try:
        with on_signals(called.set):
            os.kill(os.getpid(), number)
            await called.wait()
        assert signal.getsignal(number) is mine
    finally:
        signal.signal(number, before)


async def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        called = asyncio.Event()
        with on_signals(called.set):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)  # what is heard is called in the next turn
            assert not called.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
