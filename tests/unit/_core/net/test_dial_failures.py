from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.net.dial_failures import described, is_failure
from aioproducer.errors import AuthenticationFailed, ConnectionFailed


class Unusual(BaseException):
    """As pytest's and gevent's own: no Exception."""


@pytest.mark.parametrize(
    "error", [OSError(), TypeError(), RuntimeError(), Unusual(), asyncio.CancelledError()]
)
async def test_dial_fails_of_any_exception(error: BaseException) -> None:
    assert is_failure(error)


@pytest.mark.parametrize(
    "error", [ConnectionFailed(), AuthenticationFailed(), KeyboardInterrupt(), SystemExit(), GeneratorExit()]
)
async def test_dial_passes_on_known_errors_and_interrupts(error: BaseException) -> None:
    assert not is_failure(error)


async def test_dial_passes_on_the_cancellation_of_its_task() -> None:
    async def hang() -> bool:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as error:
            return is_failure(error)
        return True

    task = asyncio.create_task(hang())
    await asyncio.sleep(0)
    task.cancel()
    assert not await task


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("nobody there"), "nobody there"),
        (ValueError("no port 0"), "no port 0"),
        (OSError(), "OSError, which is the cause"),
        (RuntimeError("hunter2"), "RuntimeError, which is the cause"),
    ],
)
def test_text_of_a_callable_of_the_user_is_not_shown(error: BaseException, text: str) -> None:
    assert described(error) == text
