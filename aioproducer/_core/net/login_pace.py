"""Pace of a producer's logins after refusals, across all brokers, because brokers lock accounts after a few refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final, NamedTuple

from aioproducer._core.backoff import Backoff
from aioproducer._core.net.address import Address
from aioproducer._core.net.dial_failures import again
from aioproducer.errors import AuthenticationFailed

PACE: Final = Backoff(1.0, 15.0, jitter=0.1)
"""Pause between refused logins."""
AT_START: Final = 3
"""Number of brokers that may refuse a first login before pauses begin."""
AHEAD_S: Final = 0.5
"""Longest wait for the outcome of another login, in seconds: after a change of credentials one broker refuses in place of all."""
PROVEN_S: Final = 5.0
"""Time after an accepted login in which further logins do not wait, in seconds."""
ASKED_EVERY_S: Final = 1.0
"""Minimum time between two checks for changed credentials, in seconds."""
MOST_CHANGES: Final = 3
"""Consecutive changes that are tried immediately. A provider may return another token for every call."""
WANTED_S: Final = 2.5
"""Time for which a paused broker counts as waiting, in seconds."""


class _Refusal(NamedTuple):
    error: AuthenticationFailed
    proof: object
    times: int
    """Consecutive refusals of this broker."""
    next_at: float
    """Time of the next login at this broker (loop clock)."""


class LoginPace:
    """Admits logins: all of them until one is refused, then one at a time until one is accepted."""

    def __init__(self, changed: Callable[[object], Awaitable[bool]]) -> None:
        """*changed* returns True if the credentials differ from the given refused ones."""
        self._changed = changed
        self._last: _Refusal | None = None
        self._failures = 0
        self._changes = 0
        self._next_at = 0.0
        self._brokers: dict[Address, _Refusal] = {}
        self._wanted: dict[Address, float] = {}
        self._trying: dict[Address, float] = {}
        self._accepted_at = -inf
        self._asked_at = -inf
        self._news = asyncio.Event()

    @property
    def next_at(self) -> float:
        """Time of the next login after a refusal (loop clock)."""
        return self._next_at

    async def admit(self, address: Address) -> None:
        """Return if a login at *address* may begin.

        Raises: AuthenticationFailed while logins are paused: the last refusal of this broker, else that of another one.
        """
        await self._first_of_several()
        now = _now()
        last, own = self._last, self._brokers.get(address)
        if last is None and own is not None and now < own.next_at:
            last = own
        if last is not None:
            if not self._is_turn(address, now) and not await self._has_changed(last.proof, now):
                self._wanted[address] = now
                refusal = again(last.error if own is None else own.error)
                refusal.held_back = own is None
                raise refusal
            self._next_at = now + PACE.delay_s(self._failures)  # other logins wait for the outcome
        self._wanted.pop(address, None)
        self._trying[address] = _now()

    def refused(self, address: Address, error: AuthenticationFailed, proof: object) -> None:
        """Record that the broker at *address* refused the credentials *proof*."""
        now = _now()
        times = self._times(address)
        self._last = _Refusal(again(error), proof, times + 1, now + PACE.delay_s(times))
        self._brokers[address] = self._last
        self._next_at = now + PACE.delay_s(self._failures)
        self._failures += 1
        self._ended(address)

    def accepted(self, address: Address) -> None:
        """Record that the broker at *address* accepted a login. Other refusals then count for their own brokers only."""
        self._last, self._failures, self._changes = None, 0, 0
        self._next_at = 0.0
        self._accepted_at = _now()
        self._brokers.pop(address, None)
        self._wanted.clear()
        self._ended(address)

    def failed(self, address: Address) -> None:
        """Record that an admitted login ended without a response, so another login may begin."""
        if address in self._trying:
            if self._last is not None:
                self._next_at = _now()
            self._ended(address)

    def _ended(self, address: Address) -> None:
        self._trying.pop(address, None)
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _first_of_several(self) -> None:
        """Wait briefly for the outcome of a running login, unless a login was accepted recently."""
        until = _now() + AHEAD_S
        while self._last is None and self._accepted_at != -inf:
            if (
                _now() - self._accepted_at < PROVEN_S
                or _now() - max(self._trying.values(), default=-inf) >= AHEAD_S
            ):
                return
            try:
                async with asyncio.timeout_at(until):
                    await self._news.wait()
            except TimeoutError:
                return

    def _is_turn(self, address: Address, now: float) -> bool:
        own = self._brokers.get(address)
        if self._accepted_at == -inf and own is None and self._failures < AT_START:
            return True
        if now < max(0.0 if own is None else own.next_at, 0.0 if self._last is None else self._next_at):
            return False
        waiting = (each for each, at in self._wanted.items() if each != address and now - at < WANTED_S)
        return self._times(address) <= min(map(self._times, waiting), default=inf)

    def _times(self, address: Address) -> int:
        return self._brokers[address].times if address in self._brokers else 0

    async def _has_changed(self, proof: object, now: float) -> bool:
        if self._changes >= MOST_CHANGES or now - self._asked_at < ASKED_EVERY_S:
            return False
        self._asked_at = now
        try:
            has_changed = await self._changed(proof)
        except Exception:  # noqa: BLE001 - the next login raises the error
            return False
        self._changes = self._changes + 1 if has_changed else 0
        return has_changed


def _now() -> float:
    return asyncio.get_running_loop().time()
