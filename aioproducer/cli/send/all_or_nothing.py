"""The transaction of one `aioproducer send`: everything becomes visible, or nothing does."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final

from aioproducer.errors import ProducerError, TransactionOutcomeUnknown
from aioproducer.producer import Producer


class Ended(Enum):
    """How it ended; the value is what the user is told."""

    COMMITTED = "Committed: readers of committed records see all of it."
    ABORTED = "Aborted: readers of committed records (isolation.level=read_committed) see nothing of it."
    LEFT_OPEN = (
        "Not committed: readers of committed records see nothing of it; it is aborted when its time is up."
    )
    UNKNOWN = "Nobody can tell whether it is committed, and so all of it to be seen, or nothing."


def culprit_of(error: ProducerError) -> ProducerError:
    """Return *error*, or what its transaction has failed of, if that is all that kept the record from being sent."""
    cause = error.__cause__
    return cause if isinstance(cause, ProducerError) and str(error).startswith(_FOR_THE_REST) else error


_FOR_THE_REST: Final = ("cannot send: the transaction of ", "cannot go on: the transaction of ")


class AllOrNothing:
    """A transaction around what is sent; without a `transactional_id` it does nothing."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._applies = producer.config.transactional_id is not None
        self._ending: asyncio.Task[None] | None = None
        self.ended: Ended | None = None
        self.failure: ProducerError | None = None
        """Why it is not committed, although that was asked for."""

    async def begin(self) -> None:
        """Begin."""
        if self._applies:
            _ = await self._producer.begin_transaction()

    async def end(self, *, commit: bool) -> None:
        """Commit or abort, once: what comes later does nothing. Waits until `give_up`."""
        if not self._applies or self._ending is not None:
            return
        self._ending = asyncio.create_task(self._commit() if commit else self._abort())
        await asyncio.wait([self._ending])
        if self._ending.cancelled():
            self.ended = Ended.UNKNOWN if commit else Ended.LEFT_OPEN
        else:
            self._ending.result()

    def give_up(self) -> None:
        """Wait no more."""
        if self._ending is not None:
            self._ending.cancel()

    async def _commit(self) -> None:
        while True:
            try:
                await self._producer.commit_transaction()
            except TransactionOutcomeUnknown:
                continue  # it is being asked on
            except ProducerError as error:
                self.failure = error
                if error.abortable:
                    await self._abort()
                else:
                    self.ended = Ended.UNKNOWN
                return
            self.ended = Ended.COMMITTED
            return

    async def _abort(self) -> None:
        try:
            await self._producer.abort_transaction()
        except ProducerError as error:
            self.failure = self.failure or error
            self.ended = Ended.LEFT_OPEN
        else:
            self.ended = Ended.ABORTED
