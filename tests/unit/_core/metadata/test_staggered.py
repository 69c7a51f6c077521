from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from math import inf

import pytest

from aioproducer._core.metadata.staggered import Attempt, Refusals, first_success
from aioproducer.errors import AuthenticationFailed, ConnectionFailed, ProtocolError, SaslAuthenticationFailed
from aioproducer.testing.virtual_time import in_virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


class Runners:
    """Attempts with a duration, and their starts and cancellations."""

    def __init__(self) -> None:
        self.started: dict[str, float] = {}
        self.cancelled: list[str] = []

    def that(self, name: str, *, takes_s: float, raises: Exception | None = None) -> Attempt[str]:
        async def run() -> str:
            self.started[name] = now()
            try:
                await asyncio.sleep(takes_s)
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
            if raises is not None:
                raise raises
            return f"answer of {name}"

        return Attempt(name, run, 1.0)

    def that_wins(self, name: str, *, takes_s: float) -> Attempt[str]:
        return self.that(name, takes_s=takes_s)

    def that_fails(self, name: str, *, takes_s: float) -> Attempt[str]:
        return self.that(name, takes_s=takes_s, raises=ConnectionFailed("refused"))


async def race(*attempts: Attempt[str], deadline: float = inf) -> str:
    return await first_success(attempts, deadline=deadline, failure="nobody answered")


@in_virtual_time
async def test_race_asks_only_the_first_when_it_answers_in_time() -> None:
    runners = Runners()
    assert await race(runners.that_wins("a", takes_s=0.9), runners.that_wins("b", takes_s=0)) == "answer of a"
    assert runners.started == {"a": 0.0}


@in_virtual_time
async def test_race_starts_the_next_attempt_when_the_first_is_slow() -> None:
    runners = Runners()
    attempts = [
        runners.that_wins(name, takes_s=takes_s) for name, takes_s in (("a", 9), ("b", 5), ("c", 0.5))
    ]
    assert await race(*attempts) == "answer of c"
    assert runners.started == {"a": 0.0, "b": 1.0, "c": 2.0}
    assert now() == 2.5


@in_virtual_time
async def test_race_may_be_won_by_a_slow_first_attempt() -> None:
    runners = Runners()
    assert await race(runners.that_wins("a", takes_s=3), runners.that_wins("b", takes_s=9)) == "answer of a"


@in_virtual_time
async def test_race_cancels_the_other_attempts() -> None:
    runners = Runners()
    await race(runners.that_wins("a", takes_s=9), runners.that_wins("b", takes_s=0))
    assert runners.cancelled == ["a"]
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_race_starts_the_next_attempt_at_once_after_a_failure() -> None:
    runners = Runners()
    await race(
        runners.that_fails("a", takes_s=0.1),
        runners.that_fails("b", takes_s=0.2),
        runners.that_wins("c", takes_s=0),
    )
    assert runners.started == pytest.approx({"a": 0.0, "b": 0.1, "c": 0.3})


@in_virtual_time
async def test_race_waits_for_the_patience_of_each_attempt() -> None:
    runners = Runners()
    hasty = runners.that_wins("hasty", takes_s=9)._replace(timeout_s=0.25)
    await race(hasty, runners.that_wins("b", takes_s=0))
    assert runners.started == {"hasty": 0.0, "b": 0.25}


@in_virtual_time
async def test_race_lists_all_causes_when_all_have_failed() -> None:
    runners = Runners()
    garbage = ProtocolError("h:2 (bootstrap): not a broker")
    with pytest.raises(ConnectionFailed) as raised:
        await race(
            runners.that_fails("h:1", takes_s=5),
            runners.that("h:2", takes_s=1, raises=garbage),
        )
    assert str(raised.value) == "nobody answered: h:1: refused; h:2 (bootstrap): not a broker"
    assert isinstance(raised.value.__cause__, ConnectionFailed)
    assert now() == 5.0


@in_virtual_time
async def test_race_names_the_unanswered_attempts_at_the_deadline() -> None:
    runners = Runners()
    with pytest.raises(ConnectionFailed, match=r"^nobody answered: a: refused; b: no answer yet$"):
        await race(runners.that_fails("a", takes_s=0.5), runners.that_wins("b", takes_s=99), deadline=3.0)
    assert now() == 3.0
    assert runners.cancelled == ["b"]


@in_virtual_time
async def test_race_starts_no_attempt_after_the_deadline() -> None:
    runners = Runners()
    with pytest.raises(ConnectionFailed, match=r"a: no answer yet$"):
        await race(runners.that_wins("a", takes_s=99), runners.that_wins("b", takes_s=0), deadline=0.5)
    assert runners.started == {"a": 0.0}


@in_virtual_time
async def test_race_without_attempts_fails() -> None:
    with pytest.raises(ConnectionFailed, match="nobody answered: no address was asked") as raised:
        await race()
    assert raised.value.__cause__ is None


@in_virtual_time
async def test_race_raises_an_unexpected_error_at_once() -> None:
    runners = Runners()
    with pytest.raises(ZeroDivisionError):
        await race(
            runners.that_wins("a", takes_s=9),
            runners.that("b", takes_s=0.1, raises=ZeroDivisionError()),
        )
    assert now() == pytest.approx(1.1)
    assert runners.cancelled == ["a"]


@in_virtual_time
async def test_cancelled_race_cancels_all_attempts() -> None:
    runners = Runners()
    racing = asyncio.create_task(race(runners.that_wins("a", takes_s=9), runners.that_wins("b", takes_s=9)))
    await asyncio.sleep(2)
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert sorted(runners.cancelled) == ["a", "b"]


@in_virtual_time
async def test_attempts_are_created_lazily() -> None:
    runners = Runners()
    asked_for: list[tuple[str, float]] = []

    def attempts() -> Iterator[Attempt[str]]:
        for name, takes_s in (("a", 9.0), ("b", 0.0), ("c", 0.0)):
            asked_for.append((name, now()))
            yield runners.that_wins(name, takes_s=takes_s)

    await first_success(attempts(), deadline=inf, failure="nobody answered")
    assert asked_for == [("a", 0.0), ("b", 1.0)]


@in_virtual_time
async def test_race_retrieves_both_errors_of_simultaneous_failures() -> None:
    """The loop logs exceptions of tasks that were never retrieved, which is an error under the tests' filters."""
    gate = asyncio.Event()

    async def fail() -> str:
        await gate.wait()
        raise ConnectionFailed("refused")

    asyncio.get_running_loop().call_at(5.0, gate.set)
    with pytest.raises(ConnectionFailed, match="0: refused; 1: refused"):
        await race(Attempt("0", fail, 1.0), Attempt("1", fail, 1.0))


@in_virtual_time
async def test_race_prefers_a_refused_login_as_the_cause() -> None:
    runners = Runners()
    refused = AuthenticationFailed("wrong password")
    with pytest.raises(AuthenticationFailed) as raised:
        await race(
            runners.that_fails("a", takes_s=0.1),
            runners.that("b", takes_s=0.1, raises=refused),
            runners.that_fails("c", takes_s=0.1),
        )
    assert str(raised.value) == "nobody answered: a: refused; b: wrong password; c: refused"
    assert raised.value.__cause__ is refused
    assert sorted(runners.started) == ["a", "b", "c"]  # another broker may accept the login


@in_virtual_time
async def test_race_raises_a_refused_login_at_the_deadline() -> None:
    runners = Runners()
    with pytest.raises(AuthenticationFailed):
        await race(
            runners.that("a", takes_s=0.1, raises=AuthenticationFailed("wrong password")),
            runners.that_wins("b", takes_s=99),
            deadline=3.0,
        )


def refused(name: str) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(f"{name} refused the login", broker=name, mechanism="PLAIN")


class TestRefusals:
    """Of the addresses of a bootstrap."""

    def setup_method(self) -> None:
        self.runners = Runners()
        self.refusals = Refusals()

    def that_refuses(self, name: str, *, takes_s: float = 0.3, timeout_s: float = 0.25) -> Attempt[str]:
        attempt = self.runners.that(name, takes_s=takes_s, raises=refused(name))
        return attempt._replace(timeout_s=timeout_s)

    async def race(self, *attempts: Attempt[str], deadline: float = 30.0) -> str:
        return await first_success(attempts, deadline=deadline, failure="nobody", refusals=self.refusals)

    @in_virtual_time
    async def test_next_address_is_asked_at_once(self) -> None:
        assert (
            await self.race(self.that_refuses("a"), self.runners.that_wins("b", takes_s=1)) == "answer of b"
        )
        assert self.runners.started == {"a": 0.0, "b": 0.25}

    @pytest.mark.parametrize("takes_s", [0.0, 0.3, 0.9])
    @in_virtual_time
    async def test_three_addresses_may_refuse(self, takes_s: float) -> None:
        attempts = [self.that_refuses(name, takes_s=takes_s, timeout_s=0.5) for name in "abcdef"]
        with pytest.raises(SaslAuthenticationFailed) as raised:
            await self.race(*attempts)
        assert sorted(self.runners.started) == ["a", "b", "c"]
        assert str(raised.value) == "nobody: a refused the login; b refused the login; c refused the login"
        assert (raised.value.broker, raised.value.mechanism) == ("a", "PLAIN")
        assert now() <= 3 * takes_s

    @in_virtual_time
    async def test_error_of_a_single_address_is_unchanged(self) -> None:
        with pytest.raises(SaslAuthenticationFailed, match=r"^a refused the login$"):
            await self.race(self.that_refuses("a"))

    @in_virtual_time
    async def test_error_about_this_client_is_reported_once(self) -> None:
        unreadable = [
            self.runners.that(each, takes_s=0, raises=AuthenticationFailed("no TLS")) for each in "abc"
        ]
        with pytest.raises(AuthenticationFailed, match=r"^no TLS$"):
            await self.race(*unreadable)

    @in_virtual_time
    async def test_addresses_that_are_away_do_not_count(self) -> None:
        away = [self.runners.that_fails(name, takes_s=0.1) for name in "bcdef"]
        assert await self.race(self.that_refuses("a"), *away, self.runners.that_wins("g", takes_s=0))
        assert "g" in self.runners.started

    @in_virtual_time
    async def test_silent_addresses_do_not_hold_up_the_next(self) -> None:
        silent = [self.runners.that_wins(name, takes_s=99)._replace(timeout_s=0.25) for name in "bcd"]
        assert await self.race(self.that_refuses("a"), *silent, self.runners.that_wins("e", takes_s=0))
        assert now() < 4

    @in_virtual_time
    async def test_silent_addresses_do_not_hold_up_the_refusal(self) -> None:
        silent = self.runners.that_wins("b", takes_s=99)
        with pytest.raises(
            SaslAuthenticationFailed, match=r"^nobody: a refused the login; b: no answer yet$"
        ):
            await self.race(self.that_refuses("a"), silent)
        assert now() == pytest.approx(1.3)
        assert self.runners.cancelled == ["b"]

    @in_virtual_time
    async def test_slow_addresses_have_as_long_as_the_refusal_took(self) -> None:
        slow = self.that_refuses("a", takes_s=4)
        assert await self.race(slow, self.runners.that_wins("b", takes_s=7)) == "answer of b"

    @in_virtual_time
    async def test_addresses_of_one_name_count_together_with_others(self) -> None:
        async def name(of: str) -> str:
            return await self.race(*(self.that_refuses(f"{of}{each}") for each in (1, 2)))

        names = [Attempt(each, partial(name, each), 0.25) for each in "abc"]
        with pytest.raises(SaslAuthenticationFailed):
            await self.race(*names)
        assert self.refusals.count == 3
        assert len(self.runners.started) == 3
