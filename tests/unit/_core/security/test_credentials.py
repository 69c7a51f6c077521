from __future__ import annotations

import asyncio
import functools
import threading
from contextlib import suppress
from typing import Any

import pytest

from aioproducer._core.security.credentials import Credentials, Login, called
from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.secret import Secret
from aioproducer.testing.virtual_time import in_virtual_time

LOGIN = Login("u", Secret("hunter2"))


async def pair() -> tuple[str, str]:
    return "u", "hunter2"


class Vault:
    async def __call__(self) -> tuple[str, Secret]:
        return "u", Secret("hunter2")


@pytest.mark.parametrize(
    "source",
    [LOGIN, lambda: ("u", "hunter2"), pair, lambda: pair(), functools.partial(pair), Vault()],  # noqa: PLW0108 - a plain function that returns a coroutine
)
async def test_a_pair_comes_from_anywhere(source: Any) -> None:
    assert await Credentials(source).pair() == LOGIN


async def test_a_plain_function_is_called_in_a_thread_and_an_async_one_is_not() -> None:
    async def here() -> threading.Thread:
        return threading.current_thread()

    assert await called(threading.current_thread) is not threading.main_thread()
    assert await called(here) is threading.main_thread()


async def test_a_callable_is_asked_each_time() -> None:
    passwords = iter(["one", "two"])
    credentials = Credentials(lambda: ("u", next(passwords)))
    assert [(await credentials.pair()).password.reveal() for _ in range(2)] == ["one", "two"]


@pytest.mark.parametrize("given", ["ab", ("u",), ("u", b"p"), (1, "p"), None, ("u", "p", "x")])
async def test_what_is_no_pair_is_refused_without_being_shown(given: Any) -> None:
    with pytest.raises(Refused, match=f"and returned {type(given).__name__}$"):
        await Credentials(lambda: given).pair()


async def test_a_callable_that_raises_is_the_cause() -> None:
    def broken() -> tuple[str, str]:
        raise OSError("hunter2")

    with pytest.raises(Refused, match="sasl_credentials raised OSError, which is the cause") as raised:
        await Credentials(broken).pair()
    assert isinstance(raised.value.__cause__, OSError)


async def test_the_last_pair_goes_on_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = [("u", "one"), OSError("hunter2"), OSError(), ("u", "two"), OSError()]

    def vault() -> tuple[str, str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    credentials = Credentials(vault)
    got = [(await credentials.pair()).password.reveal() for _ in range(5)]
    assert got == ["one", "one", "one", "two", "two"]
    assert caplog.messages == ["security.credentials.kept error=OSError"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_of_async_callable_is_raised_by_event_loop(interrupt: type[BaseException]) -> None:
    async def interrupted() -> None:
        raise interrupt

    async def main() -> str:
        with pytest.raises(RuntimeError, match="interrupted by") as raised:
            await called(interrupted)
        await asyncio.sleep(0)
        return type(raised.value.__cause__).__name__

    loop = asyncio.new_event_loop()
    task = loop.create_task(main())
    with pytest.raises(interrupt):
        loop.run_until_complete(task)
    assert loop.run_until_complete(task) == interrupt.__name__
    loop.close()


@in_virtual_time
async def test_callable_that_hangs_once_is_asked_again() -> None:
    calls = 0

    async def vault() -> tuple[str, str]:
        nonlocal calls
        calls += 1
        if calls in {1, 3}:
            await asyncio.Event().wait()
        return "u", str(calls)

    credentials = Credentials(vault, limit_s=10)
    with pytest.raises(Refused, match="sasl_credentials did not return within 10 s"):
        await credentials.pair()
    assert (await credentials.pair()).password.reveal() == "2"
    assert (await credentials.pair()).password.reveal() == "2", "the last answer helps out"
    assert (await credentials.pair()).password.reveal() == "4"
    assert asyncio.get_running_loop().time() == 15


async def test_calls_that_hang_in_threads_are_few() -> None:
    release = threading.Event()
    calls = 0

    def vault() -> tuple[str, str]:
        nonlocal calls
        calls += 1
        release.wait(10)
        return "u", "p"

    credentials = Credentials(vault, limit_s=0.05)
    for _ in range(5):
        with pytest.raises(Refused, match=r"did not return within|does not return"):
            await credentials.pair()
    assert calls == 2
    release.set()
    async with asyncio.timeout(5):
        while True:
            with suppress(Refused):
                assert (await credentials.pair()).password.reveal() == "p"
                return
            await asyncio.sleep(0.01)
