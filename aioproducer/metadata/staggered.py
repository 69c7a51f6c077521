"""Ask one after another, and take the first answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from aioproducer.errors import AuthenticationFailed, ConnectionFailed, ProducerError

T = TypeVar("T")


class Attempt(NamedTuple, Generic[T]):
    """One way to get an answer."""

    whom: str
    """Names it where it failed."""
    start: Callable[[], Coroutine[Any, Any, T]]
    patience_s: float
    """How long it has for itself, before the next one starts beside it."""


async def first_success(
    attempts: Iterable[Attempt[T]],
    *,
    deadline: float,
    failure: str,
    final: type[ProducerError] | tuple[type[ProducerError], ...] = (),
) -> T:
    """Return the first result; an attempt starts when the one before it fails, or its patience is over.

    The others are cancelled, and have ended when this returns, raises or is cancelled.

    Raises: ConnectionFailed, *failure* with the cause of each attempt, when all have failed or at *deadline* in
        loop time; AuthenticationFailed instead if that was among the causes. What is *final*, or no ProducerError,
        ends it at once.
    """
    loop = asyncio.get_running_loop()
    source = iter(attempts)
    started: dict[asyncio.Task[T], str] = {}
    running: set[asyncio.Task[T]] = set()
    try:
        while loop.time() < deadline:
            attempt = next(source, None)
            if attempt is not None:
                task = loop.create_task(attempt.start(), name=f"aioproducer ask {attempt.whom}")
                started[task] = attempt.whom
                running.add(task)
            elif not running:
                break
            timeout_s = deadline - loop.time()
            if attempt is not None:
                timeout_s = min(timeout_s, attempt.patience_s)
            done, running = await asyncio.wait(
                running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                error = task.exception()
                if not isinstance(error, ProducerError) or isinstance(error, final):
                    return task.result()
        raise _failed(failure, started)
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def _failed(failure: str, attempts: dict[asyncio.Task[Any], str]) -> ProducerError:
    causes = [(whom, task.exception() if task.done() else None) for task, whom in attempts.items()]
    for _, cause in causes:
        if isinstance(
            cause, AuthenticationFailed
        ):  # what has to be mended; the others may come back by themselves
            return cause
    told = "; ".join(_told(whom, cause) for whom, cause in causes) or "nobody was asked"
    error = ConnectionFailed(f"{failure}: {told}")
    error.__cause__ = next((cause for _, cause in causes if cause is not None), None)
    return error


def _told(whom: str, cause: BaseException | None) -> str:
    if cause is None:
        return f"{whom}: no answer yet"
    return str(cause) if whom in str(cause) else f"{whom}: {cause}"
