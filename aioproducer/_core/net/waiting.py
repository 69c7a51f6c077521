"""Helpers for Futures that may be done already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aioproducer._core.net.large_answers import LargeAnswer
from aioproducer._core.worker_threads import WORK_THREADS
from aioproducer.errors import ProducerError, ProtocolError


def let_go(waiting: asyncio.Future[None] | None) -> None:
    """Resolve *waiting*, if it is pending."""
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def resolve(answered: asyncio.Future[Any], outcome: Any) -> None:
    """Resolve *answered* with *outcome*, a response or an error, unless it was cancelled."""
    if answered.done():
        return
    if isinstance(outcome, ProducerError):
        answered.set_exception(outcome)
    else:
        answered.set_result(outcome)


async def decoded(answer: Any, refuse: Callable[[ProtocolError], None]) -> Any:
    """Return *answer* decoded. A ProtocolError is raised, and passed to *refuse*, which closes the connection."""
    if not isinstance(answer, LargeAnswer):
        return answer
    try:
        message, _ = await WORK_THREADS.run_anyway(answer.decode)
    except ProtocolError as error:
        refuse(error)
        raise
    return message
