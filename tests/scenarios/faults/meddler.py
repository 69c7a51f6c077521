"""User code that calls the producer and raises in each of its callbacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Final

from aioproducer import Producer, ProducerError

LOGGER: Final = logging.getLogger("aioproducer")
CALLS_PER_EVENT: Final = 0.2
RAISES_PER_EVENT: Final = 0.1


class Meddler(logging.Handler):
    """An interceptor and log handler that makes random calls and raises random errors while `active` is set."""

    def __init__(self, chance: Random) -> None:
        super().__init__(logging.DEBUG)
        self._chance = chance
        self._calls: Sequence[Callable[[], object]] = ()
        self._is_inside = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_active(self) -> bool:
        """True if the meddler makes calls."""
        return bool(self._calls)

    @contextmanager
    def active(self, producer: Producer, *calls: Callable[[], object]) -> Iterator[None]:
        """Make any of *calls*, or others that change no record; at the end it is quiet again."""
        before = LOGGER.level, LOGGER.propagate, logging.raiseExceptions
        LOGGER.propagate = LOGGER.isEnabledFor(logging.WARNING)
        LOGGER.setLevel(min(LOGGER.getEffectiveLevel(), logging.WARNING))
        logging.raiseExceptions = False  # what the handler raises is not printed
        LOGGER.addHandler(self)
        others = (producer.metrics, producer.__len__, lambda: self._flush(producer))
        self._calls = (*calls, *others)
        try:
            yield
        finally:
            self._calls = ()
            LOGGER.removeHandler(self)
            level, LOGGER.propagate, logging.raiseExceptions = before
            LOGGER.setLevel(level)

    def on_acknowledgement(self, *_: object) -> None:
        """Meddle."""
        self._meddle()

    def handle(self, record: logging.LogRecord) -> bool:
        """Meddle; the logging module contains exceptions of `emit`."""
        if not record.name.startswith("aioproducer.testing"):
            self._meddle()
        return True

    def _meddle(self) -> None:
        if self._is_inside or not self._calls:
            return
        self._is_inside = True
        try:
            if self._chance.random() < CALLS_PER_EVENT:
                with suppress(ProducerError):
                    self._chance.choice(self._calls)()
        finally:
            self._is_inside = False
        if self._chance.random() < RAISES_PER_EVENT:
            raise LookupError("user code")

    def _flush(self, producer: Producer) -> None:
        task = asyncio.get_running_loop().create_task(self._flushed(producer), name="flush of user code")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flushed(self, producer: Producer) -> None:
        with suppress(ProducerError):
            await producer.flush()
