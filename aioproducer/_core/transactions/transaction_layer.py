"""The transactional layer of a producer: its parts, and their wiring to the layers beside and below."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aioproducer._core.backoff import Backoff
from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.net.pool import Pool
from aioproducer._core.transactions.coordinator import Coordinators
from aioproducer._core.transactions.producer_transactions import Transactions
from aioproducer._core.transactions.transaction_manager import TransactionManager
from aioproducer._core.transactions.transaction_records import TransactionRecords
from aioproducer._core.transactions.transaction_requests import TransactionSettings
from aioproducer.errors import ProducerError


class TransactionLayer:
    """Transactional parts of an engine with a transactional id.

    The parts depend on each other and on other layers, so they are created in three steps: `manager` at once (for the
    accumulator), `records` in `watch` (for the completion and the sender), `transactions` in `open`.
    """

    records: TransactionRecords
    transactions: Transactions

    def __init__(
        self, settings: TransactionSettings, backoff: Backoff, *, on_moved: Callable[[bool], None]
    ) -> None:
        """*on_moved* receives True if the open transaction accepts records."""
        self._settings = settings
        self._backoff = backoff
        self.manager: Final = TransactionManager(
            settings.transactional_id, on_wanted=self._partitions_wanted, on_moved=on_moved
        )

    def watch(
        self, accumulator: Accumulator, updater: MetadataUpdater, *, on_fatal: Callable[[ProducerError], None]
    ) -> TransactionRecords:
        """Follow the records in *accumulator*; *on_fatal* receives a fatal error of the cluster."""
        self.records = TransactionRecords(
            self.manager, accumulator=accumulator, updater=updater, on_fatal=on_fatal
        )
        return self.records

    def open(
        self,
        completion: BatchCompletion,
        pool: Pool,
        updater: MetadataUpdater,
        *,
        on_admitted: Callable[[], None],
    ) -> Transactions:
        """Return the transactions; *on_admitted* is called once waiting batches may be sent."""
        self.records.end_through(completion)
        self._coordinators = Coordinators(pool, updater, self._backoff, completion.limits)
        self.transactions = Transactions(
            self._settings, self.manager, self._coordinators, records=self.records, on_admitted=on_admitted
        )
        return self.transactions

    def connected(self, node_id: int) -> None:
        """Note a connection to a node."""
        self._coordinators.connected(node_id)

    def disconnected(self) -> None:
        """Note a failed or closed connection."""
        self._coordinators.connections_changed()

    def _partitions_wanted(self) -> None:
        self.transactions.partitions_wanted()
