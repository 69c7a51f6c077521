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
    calls = [asyncio.create_task(line.enter(line.place(attempt), NEVER)) for attempt in attempts]
    await asyncio.sleep(0)
    return calls


@in_virtual_time
async def test_the_first_has_its_turn_at_once() -> None:
    line: Line[str] = Line()
    assert await line.enter(line.place(nothing), NEVER) is None
    assert line.length == 1
    line.leave()
    assert line.length == 0


@in_virtual_time
async def test_who_leaves_serves_those_behind_it_in_order() -> None:
    line: Line[str] = Line()
    await line.enter(line.place(nothing), NEVER)
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
    await line.enter(line.place(nothing), NEVER)
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
    await line.enter(line.place(nothing), NEVER)

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
    await line.enter(line.place(nothing), NEVER)
    with pytest.raises(TimeoutError):
        await line.enter(line.place(lambda: "a"), 1.0)
    assert asyncio.get_running_loop().time() == 1
    assert line.length == 1
    line.leave()
    assert line.length == 0


@in_virtual_time
async def test_cancelled_it_is_in_line_no_more() -> None:
    line: Line[str] = Line()
    await line.enter(line.place(nothing), NEVER)
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
    await line.enter(line.place(nothing), NEVER)
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
    await line.enter(line.place(nothing), NEVER)
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

    await line.enter(line.place(nothing), NEVER)
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
    await line.enter(line.place(nothing), NEVER)
    loop.call_at(1.0, line.leave)  # before its timer, at the same time
    assert await line.enter(line.place(lambda: "a"), 1.0) == "a"
    assert line.length == 0


@in_virtual_time
async def test_who_steps_aside_is_let_in_in_front_of_those_who_came_later() -> None:
    line: Line[str] = Line()
    made: list[str] = []

    def attempt(name: str) -> str:
        made.append(name)
        return name

    first = line.place(nothing)
    await line.enter(first, NEVER)
    aside = [line.place(partial(attempt, name)) for name in "ab"]
    calls = await in_line(line, *(partial(attempt, name) for name in "cd"))
    line.let_in(reversed(aside))
    assert line.length == 5
    line.leave()
    assert made == ["a", "b", "c", "d"]
    assert line.length == 0
    assert [await line.enter(place, NEVER) for place in aside] == ["a", "b"]
    assert await asyncio.gather(*calls) == ["c", "d"]


@in_virtual_time
async def test_let_in_while_nobody_has_its_turn_they_are_served_at_once() -> None:
    line: Line[str] = Line()
    served, has_turn, behind = (line.place(attempt) for attempt in (lambda: "a", nothing, lambda: "c"))
    line.let_in([served, has_turn, behind])
    assert line.length == 2
    assert await line.enter(served, NEVER) == "a"
    assert await line.enter(has_turn, NEVER) is None
    line.leave()
    assert line.length == 0
    assert await line.enter(behind, NEVER) == "c"


@in_virtual_time
async def test_who_has_its_turn_may_let_in_itself_behind_those_who_came_before() -> None:
    line: Line[str] = Line()
    before, holder, behind = (line.place(attempt) for attempt in (lambda: "a", lambda: "b", lambda: "c"))
    await line.enter(holder, NEVER)
    line.let_in([behind])
    assert line.comes_first(holder)
    line.let_in([before])
    assert not line.comes_first(holder)
    line.let_in([holder])
    line.leave()
    assert [await line.enter(place, NEVER) for place in (before, holder, behind)] == ["a", "b", "c"]
    assert line.length == 0


@in_virtual_time
async def test_who_waits_no_more_comes_before_nobody() -> None:
    line: Line[str] = Line()
    gone, holder = line.place(nothing), line.place(nothing)
    await line.enter(holder, NEVER)
    line.let_in([gone])
    line.withdraw(gone)
    assert line.comes_first(holder)


@in_virtual_time
async def test_let_in_it_may_be_late_as_well() -> None:
    line: Line[str] = Line()
    await line.enter(line.place(nothing), NEVER)
    place = line.place(lambda: "a")
    line.let_in([place])
    with pytest.raises(TimeoutError):
        await line.enter(place, 1.0)
    assert line.length == 1


@in_virtual_time
async def test_a_place_may_be_used_again() -> None:
    line: Line[str] = Line()
    place = line.place(nothing)
    for _ in range(2):
        assert await line.enter(place, NEVER) is None
        line.leave()
    line.let_in([place])
    assert await line.enter(place, NEVER) is None
    assert line.length == 1


@in_virtual_time
async def test_withdrawn_beside_the_line_nobody_notices() -> None:
    line: Line[str] = Line()
    line.withdraw(line.place(nothing))
    assert line.length == 0


@in_virtual_time
async def test_withdrawn_while_it_waits_it_is_in_line_no_more() -> None:
    line: Line[str] = Line()
    await line.enter(line.place(nothing), NEVER)
    place = line.place(lambda: pytest.fail("nobody wants it"))
    line.let_in([place])
    line.withdraw(place)
    assert line.length == 1
    line.leave()
    assert line.length == 0


@in_virtual_time
async def test_withdrawn_in_its_turn_it_passes_it_on() -> None:
    line: Line[str] = Line()
    place = line.place(nothing)
    line.let_in([place])
    [behind] = await in_line(line, lambda: "b")
    line.withdraw(place)
    assert await behind == "b"
    assert line.length == 0


@in_virtual_time
async def test_withdrawn_after_it_was_served_it_leaves_nothing_behind() -> None:
    line: Line[str] = Line()

    def fail() -> str:
        raise ValueError("spoilt")

    places = [line.place(attempt) for attempt in (lambda: "a", fail)]
    line.let_in(places)
    for place in places:
        line.withdraw(place)
    assert line.length == 0
