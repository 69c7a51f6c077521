"""The transactional floor of a producer: its parts, wired to each other and to the floors beside and below."""

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


class TransactionFloor:
    """What an engine with a transactional id has besides.

    Its parts need each other, and floors that need some of them: so `manager` is there first, for the accumulator,
    `records` after `watch`, for the completion and the sender, and `transactions` after `open`.
    """

    records: TransactionRecords
    transactions: Transactions

    def __init__(
        self, settings: TransactionSettings, backoff: Backoff, *, on_moved: Callable[[bool], None]
    ) -> None:
        """*on_moved* is told whether the open transaction takes records."""
        self._settings = settings
        self._backoff = backoff
        self.manager: Final = TransactionManager(
            settings.transactional_id, on_wanted=self._partitions_wanted, on_moved=on_moved
        )

    def watch(
        self, accumulator: Accumulator, updater: MetadataUpdater, *, on_fatal: Callable[[ProducerError], None]
    ) -> TransactionRecords:
        """Follow the records in *accumulator*; *on_fatal* is told the end that the cluster makes of the producer."""
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
        """Take transactions from now on; *on_admitted* is called when batches may go that were waiting for that."""
        self.records.end_through(completion)
        self._coordinators = Coordinators(pool, updater, self._backoff, completion.limits)
        self.transactions = Transactions(
            self._settings, self.manager, self._coordinators, records=self.records, on_admitted=on_admitted
        )
        return self.transactions

    def connected(self, node_id: int) -> None:
        """Note that there is a connection to a node."""
        self._coordinators.connected(node_id)

    def disconnected(self) -> None:
        """Note that a node could not be reached, or is connected no more."""
        self._coordinators.connections_changed()

    def _partitions_wanted(self) -> None:
        self.transactions.partitions_wanted()
