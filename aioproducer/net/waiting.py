"""Futures that may be done already when there is something to tell."""

from __future__ import annotations

import asyncio
from typing import Any

from aioproducer.errors import ProducerError


def let_go(waiting: asyncio.Future[None] | None) -> None:
    """Let who waits go on, if anybody does."""
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def resolve(answered: asyncio.Future[Any], outcome: Any) -> None:
    """Give *outcome*, an answer or an error, to who waits for it; nobody does if *answered* was cancelled."""
    if answered.done():
        return
    if isinstance(outcome, ProducerError):
        answered.set_exception(outcome)
    else:
        answered.set_result(outcome)
