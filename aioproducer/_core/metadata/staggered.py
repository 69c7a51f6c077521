"""Staggered attempts; the first successful attempt wins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from math import inf, isfinite
from typing import Any, Final, Generic, NamedTuple, TypeVar

from aioproducer.errors import AuthenticationFailed, ConnectionFailed, ProducerError

T = TypeVar("T")

MOST_REFUSALS: Final = 3
"""Maximum number of addresses that may refuse the login or fail verification. Brokers lock accounts after a few refusals."""
REFUSED_TIMEOUT_S: Final = 1.0
"""Minimum time for the other addresses to answer after a refusal, in seconds."""


class Attempt(NamedTuple, Generic[T]):
    """One attempt to obtain a result."""

    name: str
    """Name of the attempt, for errors."""
    start: Callable[[], Coroutine[Any, Any, T]]
    timeout_s: float
    """Head start over the next attempt, in seconds."""


class Refusals:
    """Counter of the AuthenticationFailed errors of one bootstrap, shared by all names and their addresses."""

    def __init__(self, most: float = MOST_REFUSALS) -> None:
        self.count: int = 0
        self._refused = 0
        self._others = 0
        self._most = most
        self._noted: list[BaseException] = []
        self._asking: set[asyncio.Task[Any]] = set()

    def begin(self) -> None:
        """Remove the current task from the pending attempts; `watch` counts the attempts that the current task starts."""
        self._asking -= {asyncio.current_task()}

    def watch(self, attempt: asyncio.Task[Any]) -> None:
        """Count *attempt* as pending until it ends, and then count its refusal."""
        self._asking.add(attempt)
        attempt.add_done_callback(self._ended)

    def note(self, error: BaseException | None) -> None:
        """Count *error* if it is an AuthenticationFailed that was not counted before."""
        if isinstance(error, AuthenticationFailed) and not any(each is error for each in self._noted):
            self._noted.append(error)
            self.count += 1

    def note_summary(self, error: ProducerError) -> None:
        """Exclude *error* from the count: each error that it summarizes was counted."""
        self._noted.append(error)

    def permit(self, *, is_silent: bool) -> bool:
        """Return True if one more address may be asked in addition to the addresses of pending attempts.

        If *is_silent*, the time for the pending attempts is over, and pending attempts are not counted.
        """
        if not self.count:
            return True
        return self.count < self._most and (is_silent or self.count + len(self._asking) < self._most)

    @property
    def is_final(self) -> bool:
        """True if all asked addresses, or *most* addresses, refused the login. Another bootstrap would also be refused."""
        return self._refused > 0 and (not self._others or self._refused >= self._most)

    def timeout_s(self, elapsed_s: float) -> float:
        """Return the time for the other addresses to answer; infinity before a refusal or without a limit of refusals."""
        return max(REFUSED_TIMEOUT_S, elapsed_s) if self.count and isfinite(self._most) else inf

    def _ended(self, attempt: asyncio.Task[Any]) -> None:
        self._asking.discard(attempt)
        error = None if attempt.cancelled() else attempt.exception()
        if not isinstance(error, AuthenticationFailed) or error.held_back:
            self._others += 1
        elif not any(each is error for each in self._noted):
            self._refused += 1
        self.note(error)


async def first_success(
    attempts: Iterable[Attempt[T]],
    *,
    deadline: float,
    failure: str,
    extended: Callable[[], float] = lambda: 0.0,
    refusals: Refusals | None = None,
) -> T:
    """Return the first result. An attempt starts when the previous attempt fails or has run for its `timeout_s`.

    A later time that *extended* returns replaces *deadline*. The running attempts are cancelled, and have ended
    when this call returns, raises or is cancelled. *refusals* limits the attempts that end with AuthenticationFailed. A
    refusal gives the running attempts as much time as had passed before the refusal, and at least `REFUSED_TIMEOUT_S`.

    Raises: ConnectionFailed when all attempts have failed, or at *deadline* (loop clock); AuthenticationFailed instead, if
        one cause is AuthenticationFailed. `failed` creates both errors from *failure* and the cause of each attempt. An
        attempt that raises anything other than a ProducerError ends the call at once.
    """
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    source = iter(attempts)
    started: dict[asyncio.Task[T], str] = {}
    running: set[asyncio.Task[T]] = set()
    refusals = refusals or Refusals(inf)
    refusals.begin()
    is_silent = False
    try:
        while (now := loop.time()) < (until := max(deadline, extended())):
            attempt = next(source, None) if refusals.permit(is_silent=is_silent) else None
            timeout_s = refusals.timeout_s(now - began_at)
            if attempt is not None:
                task = loop.create_task(attempt.start(), name=f"aioproducer ask {attempt.name}")
                started[task] = attempt.name
                running.add(task)
                refusals.watch(task)
                timeout_s = attempt.timeout_s
            elif not running or is_silent:
                break
            done, running = await asyncio.wait(
                running, timeout=min(until - now, timeout_s), return_when=asyncio.FIRST_COMPLETED
            )
            is_silent = attempt is None and not done and timeout_s <= until - now
            for task in done:
                if not isinstance(task.exception(), ProducerError):
                    return task.result()
        causes = [(name, task.exception() if task.done() else None) for task, name in started.items()]
        raise failed(failure, causes, refusals)
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def failed(
    failure: str, causes: Sequence[tuple[str, BaseException | None]], refusals: Refusals | None = None
) -> ProducerError:
    """Return the error of attempts that have all failed: *failure*, and per attempt its name and cause (None: no answer).

    The error is AuthenticationFailed if one cause is AuthenticationFailed: a refusal requires action by the user, while
    other failures may be temporary.
    """
    causes_text = "; ".join(_described(name, cause) for name, cause in causes) or "no address was asked"
    refusal = next((cause for _, cause in causes if isinstance(cause, AuthenticationFailed)), None)
    if refusal is None:
        error: ProducerError = ConnectionFailed(f"{failure}: {causes_text}")
        error.__cause__ = next((cause for _, cause in causes if cause is not None), None)
    elif len({str(cause) for _, cause in causes}) == 1:
        return refusal  # equal causes: the refusal concerns this client, or there is one address
    else:
        error = type(refusal)(f"{failure}: {causes_text}", broker=refusal.broker, mechanism=refusal.mechanism)
        error.__cause__ = refusal
    if refusals is not None:
        refusals.note_summary(error)
    return error


def _described(name: str, cause: BaseException | None) -> str:
    if cause is None:
        return f"{name}: no answer yet"
    return str(cause) if name in str(cause) else f"{name}: {cause}"
