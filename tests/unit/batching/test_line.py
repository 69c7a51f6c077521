from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from aioproducer.batching.line import Line
from aioproducer.testing.virtual_time import in_virtual_time

NEVER = 1e9


def nothing() -> None:
    return None


async def in_line(line: Line[str], *attempts: Callable[[], str | None]) -> list[asyncio.Task[str | None]]:
    """Return calls that wait, in this order."""
    calls = [asyncio.create_task(line.enter(NEVER, attempt)) for attempt in attempts]
    await asyncio.sleep(0)
    return calls


@in_virtual_time
async def test_the_first_has_its_turn_at_once() -> None:
    line: Line[str] = Line()
    assert await line.enter(NEVER, nothing) is None
    assert line.length == 1
    line.leave()
    assert line.length == 0


@in_virtual_time
async def test_who_leaves_serves_those_behind_it_in_order() -> None:
    line: Line[str] = Line()
    await line.enter(NEVER, nothing)
    made: list[str] = []

    def attempt(name: str) -> str:
        made.append(name)
        return name

    calls = await in_line(line, *(partial(attempt, name) for name in "abc"))
    line.leave()
    assert made == ["a", "b", "c"]
    assert line.length == 0
    assert await asyncio.gather(*calls) == ["a", "b", "c"]


@in_virtual_time
async def test_who_cannot_be_served_has_its_turn_and_the_rest_wait_for_it() -> None:
    line: Line[str] = Line()
    await line.enter(NEVER, nothing)
    served, has_turn, behind = await in_line(line, lambda: "a", nothing, lambda: "c")
    line.leave()
    assert await served == "a"
    assert await has_turn is None
    assert line.length == 2
    assert not behind.done()
    line.leave()
    assert await behind == "c"


@in_virtual_time
async def test_an_attempt_that_fails_fails_its_own_call_alone() -> None:
    line: Line[str] = Line()
    await line.enter(NEVER, nothing)

    def fail() -> str:
        raise ValueError("spoilt")

    failing, fine = await in_line(line, fail, lambda: "b")
    line.leave()
    with pytest.raises(ValueError, match="spoilt"):
        await failing
    assert await fine == "b"
    assert line.length == 0


@in_virtual_time
async def test_late_it_is_in_line_no_more() -> None:
    line: Line[str] = Line()
    await line.enter(NEVER, nothing)
    with pytest.raises(TimeoutError):
        await line.enter(1.0, lambda: "a")
    assert asyncio.get_running_loop().time() == 1
    assert line.length == 1
    line.leave()
    assert line.length == 0


@in_virtual_time
async def test_cancelled_it_is_in_line_no_more() -> None:
    line: Line[str] = Line()
    await line.enter(NEVER, nothing)
    cancelled, behind = await in_line(line, lambda: "a", lambda: "b")
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert line.length == 2
    line.leave()
    assert await behind == "b"
    assert line.length == 0


@in_virtual_time
async def test_cancelled_in_the_moment_of_its_turn_it_passes_it_on() -> None:
    line: Line[str] = Line()
    await line.enter(NEVER, nothing)
    cancelled, behind = await in_line(line, nothing, lambda: "b")
    line.leave()
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    assert await behind == "b"
    assert line.length == 0


@in_virtual_time
async def test_cancelled_in_the_moment_of_being_served_it_leaves_nothing_behind() -> None:
    line: Line[str] = Line()
    await line.enter(NEVER, nothing)
    (cancelled,) = await in_line(line, lambda: "a")
    line.leave()
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    assert line.length == 0


@in_virtual_time
async def test_a_cancelled_error_of_the_users_own_code_reaches_the_one_it_is_for() -> None:
    line: Line[str] = Line()

    def cancel() -> str:
        raise asyncio.CancelledError

    await line.enter(NEVER, nothing)
    cancelled, behind = await in_line(line, cancel, lambda: "b")
    line.leave()
    assert await behind == "b"
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    assert line.length == 0


@in_virtual_time
async def test_one_that_is_served_at_its_deadline_is_not_late() -> None:
    line: Line[str] = Line()
    loop = asyncio.get_running_loop()
    await line.enter(NEVER, nothing)
    loop.call_at(1.0, line.leave)  # before its timer, at the same time
    assert await line.enter(1.0, lambda: "a") == "a"
    assert line.length == 0
