"""When transactions end: their timeouts, and their markers, on the event loop of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from aioproducer.testing.coordinator import Coordinator
from aioproducer.testing.transaction import Transaction, TransactionState

PATIENCE_S: Final = 0.1
"""How long Kafka lets a batch wait that begins a transaction while the one before is being completed."""


class TransactionTimers:
    """Lets transactions time out, and has their markers written, after *marker_delay_s*.

    *write_markers* returns whether all could be written; if not, `retry` has it called again.
    """

    def __init__(
        self, new_producer_id: Callable[[], int], write_markers: Callable[[Transaction], bool]
    ) -> None:
        self.marker_delay_s: float = 0.0
        self.coordinator: Final = Coordinator(new_producer_id, begun=self._begun, prepared=self._prepared)
        self._write_markers = write_markers
        self._timeouts: dict[str, asyncio.TimerHandle] = {}
        self._delays: dict[str, asyncio.TimerHandle] = {}
        self._unwritten: dict[str, Transaction] = {}
        self._waiting: set[asyncio.Event] = set()

    async def settled(self, transactional_id: str) -> None:
        """Wait until the id's transaction has ended, if it is about to, and if it does soon."""
        known = self.coordinator.transactions.get(transactional_id)
        if known is None or not known.state.is_prepared:
            return
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    while known.state.is_prepared:
                        await changed.wait()
                        changed.clear()
        finally:
            self._waiting.discard(changed)

    def retry(self) -> None:
        """Write the markers that could not be written: a partition has a leader again, or is gone."""
        for known in list(self._unwritten.values()):
            self._complete(known)

    def stop(self) -> None:
        """Let nothing happen any more."""
        for timer in (*self._timeouts.values(), *self._delays.values()):
            timer.cancel()

    def _begun(self, known: Transaction) -> None:
        self._timeouts[known.transactional_id] = asyncio.get_running_loop().call_later(
            known.timeout_ms / 1000, partial(self.coordinator.expire, known, known.number)
        )

    def _prepared(self, known: Transaction) -> None:
        timeout = self._timeouts.pop(known.transactional_id, None)
        if timeout is not None:
            timeout.cancel()
        if self.marker_delay_s:
            self._delays[known.transactional_id] = asyncio.get_running_loop().call_later(
                self.marker_delay_s, self._complete, known
            )
        else:
            self._complete(known)

    def _complete(self, known: Transaction) -> None:
        self._delays.pop(known.transactional_id, None)
        if not self._write_markers(known):
            self._unwritten[known.transactional_id] = known
            return
        self._unwritten.pop(known.transactional_id, None)
        self.coordinator.complete(known)
        for changed in self._waiting:
            changed.set()


def is_commit(known: Transaction) -> bool:
    """Whether the markers of a transaction that ends say that it is committed."""
    return known.state is TransactionState.PREPARE_COMMIT
