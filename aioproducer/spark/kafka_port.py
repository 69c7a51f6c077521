"""`decision_protocol.Kafka` on real brokers, and the topic of decisions."""

# ruff: noqa: D102 - the methods are documented once, by Kafka
from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aioproducer import errors
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer._core.transactions.administration import OPEN_STATES
from aioproducer._topic_client import Client
from aioproducer.errors import ProducerError
from aioproducer.producer import Producer
from aioproducer.spark.decision_protocol import End, TransactionInfo
from aioproducer.spark.decision_records import (
    COMMIT,
    PARTITION,
    TOPIC,
    TOPIC_CONFIG,
    Decided,
    DecisionView,
    Entry,
    Share,
)
from aioproducer.spark.delivery import DeliveryError
from aioproducer.spark.messages import log_topic_unchecked

if TYPE_CHECKING:
    from aioproducer._core.transactions.transaction_types import PreparedTransaction
    from aioproducer.spark.sink_options import ProducerSettings
    from aioproducer.transaction_admin import TransactionAdmin


ONGOING = "Ongoing"
REPLACED = (errors.InvalidProducerEpoch, errors.InvalidProducerIdMapping, errors.ProducerFenced)
"""Errors of a producer that no longer owns its transactional id."""


class KafkaPort:
    """Implementation of `decision_protocol.Kafka`; *read* returns the current decisions, *admin* is connected."""

    def __init__(
        self, settings: ProducerSettings, admin: TransactionAdmin, read: Callable[[], Awaitable[DecisionView]]
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._read = read
        self._removed = 0
        self._driver: Producer | None = None
        """Producer of the last decision, reused for the next decision."""

    async def take_over(self, name: str) -> PreparedTransaction:
        producer = self._producer(name)
        await producer.start(wait=True)
        try:
            return producer._identity()  # noqa: SLF001 - of this package
        finally:
            await producer.close(timeout_s=0)

    async def succeed(self, driver: PreparedTransaction) -> bool:
        producer = self._producer(driver.transactional_id)
        try:
            await producer._start_resumed(driver, anew=True)  # noqa: SLF001 - of this package
        except REPLACED:
            return False
        await producer.close(timeout_s=0)
        return True

    async def decisions(self) -> Mapping[str, Decided]:
        view = await self._read()
        self._removed = view.first_offset
        return view.all()

    async def removed(self) -> int:
        return self._removed

    async def write(self, driver: PreparedTransaction, entries: Sequence[Entry]) -> PreparedTransaction:
        """Write and commit *entries* under the epoch of *driver*; return the epoch for the next write.

        Below `transaction.version` 2 a commit keeps the epoch and its sequences, which another producer cannot continue:
        brokers would treat the first record of that producer as a duplicate. `write` then takes the next epoch.
        """
        producer = await self._driver_producer(driver)
        try:
            now = await commit_entries(producer, entries)
        except BaseException:
            await self.aclose()
            raise
        if now.epoch != driver.epoch:
            return now
        await self.aclose()
        producer = self._producer(now.transactional_id)
        await producer._start_resumed(now, anew=True)  # noqa: SLF001 - of this package
        try:
            return producer._identity()  # noqa: SLF001 - of this package
        finally:
            await producer.close(timeout_s=0)

    async def commit(self, shares: Sequence[Share]) -> Mapping[Share, End]:
        by_handle = {share.prepared: share for share in shares}
        ended = await self._admin.end_many(by_handle, commit=True)
        return {share: _end(ended[handle]) for handle, share in by_handle.items()}

    async def outcome_in_log(self, share: Share) -> End:
        """Return the outcome of *share* from the next control batch of its producer id in its partition."""
        where = share.topic, share.partition
        async with Client(self._settings.config()) as client:
            if await client.first_offset(*where) > share.last_offset:
                return End.UNKNOWN  # retention has deleted the records
            end = await client.end_offset(*where)
            async for batches in client.batches(*where, share.last_offset, end):
                for batch in batches:
                    if (
                        batch.control
                        and batch.producer_id == share.producer_id
                        and batch.last_offset > share.last_offset
                        and batch.records
                    ):
                        key = batch.records[0].key or b""
                        return End.COMMITTED if int.from_bytes(key[2:4]) == COMMIT else End.LOST
        return End.UNKNOWN

    async def describe(self, names: Collection[str]) -> Mapping[str, TransactionInfo | None]:
        found = await self._admin.describe(*names)
        return {
            name: each
            and TransactionInfo(
                each.producer_id,
                each.epoch,
                is_open=each.state in OPEN_STATES,
                takes_records=each.state == ONGOING,
                began_at_ms=self.now_ms() if each.began_at_ms is None else each.began_at_ms,
            )
            for name, each in found.items()
        }

    async def ongoing(self, prefix: str) -> Sequence[str]:
        """Return the ids with *prefix* and an open transaction. All open ids are listed: Kafka before 4.1 has no pattern."""
        listed = await self._admin.list(states=[ONGOING])
        return [each.transactional_id for each in listed if each.transactional_id.startswith(prefix)]

    async def fence(self, names: Collection[str]) -> None:
        await self._admin.fence(*names)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def _driver_producer(self, driver: PreparedTransaction) -> Producer:
        """Return a producer that continues as *driver*: the current producer if its identity is *driver*."""
        if self._driver is not None and self._driver._identity()[:3] == driver[:3]:  # noqa: SLF001 - of this package
            return self._driver
        await self.aclose()
        self._driver = await resumed(driver, self._settings)
        return self._driver

    async def aclose(self) -> None:
        """Close the producer of decisions."""
        producer, self._driver = self._driver, None
        if producer is not None:
            await producer.close(timeout_s=0)

    def _producer(self, name: str) -> Producer:
        return Producer.from_config(self._settings.with_transactional_id(name).config())


def _end(error: ProducerError | None) -> End:
    if error is None:
        return End.COMMITTED
    if isinstance(error, errors.TransactionLost):
        return End.LOST
    if isinstance(error, errors.TransactionOutcomeUnknown) and isinstance(
        error.__cause__, (*REPLACED, errors.InvalidTxnState)
    ):
        return End.UNKNOWN
    raise DeliveryError(
        f"the decided batch is not committed everywhere yet; start the query again: {type(error).__name__}: {error}"
    ) from error


POLICY: Final = "cleanup.policy"
DELETE: Final = "delete"
LIMITS: Final = ("retention.ms", "retention.bytes")
"""Settings of topics with cleanup.policy=delete; a negative value is unlimited."""
SETTINGS: Final = (POLICY, *LIMITS)


async def read_new_records(view: DecisionView, client: Client) -> None:
    """Read the log from the offset of *view* to its end.

    Raises: DeliveryError: records were lost. ProducerError: the log cannot be read.
    """
    found_id = await _existing(client)
    topic_id = view.topic_id if found_id == NO_TOPIC_ID else found_id
    is_other = view.topic_id not in {NO_TOPIC_ID, topic_id}
    end = await client.end_offset(TOPIC, PARTITION)
    first = await client.first_offset(TOPIC, PARTITION)
    if view.offset and (end < view.offset or first > view.offset or is_other):
        raise DeliveryError(
            f"{TOPIC}: decisions are lost, as the topic was read up to offset {view.offset} and"
            f" {'was recreated, with' if is_other else 'has'} offsets {first} to {end} now;"
            " start the query again, which checks the topic"
        )
    view.topic_id, view.first_offset = topic_id, first
    view.offset = max(view.offset, first)
    async for batches in client.batches(TOPIC, PARTITION, view.offset, end):
        for batch in batches:
            view.take(batch)


async def check_retention(client: Client, servers: str) -> None:
    """Check that the topic keeps its records; log a warning if this client may not describe the settings of the topic.

    Raises: DeliveryError: decisions expire, with the command for *servers* that repairs the topic. ProducerError.
    """
    await _existing(client)
    try:
        settings = await client.topic_settings(TOPIC, SETTINGS)
    except ProducerError as error:
        if error.retriable:
            raise
        log_topic_unchecked(TOPIC, f"{type(error).__name__}: {error}")
        return
    if missing := [name for name in SETTINGS if name not in settings]:
        log_topic_unchecked(TOPIC, f"the broker describes no {', '.join(missing)}")
        return
    if (limit := expiring_setting(settings)) is not None:
        raise DeliveryError(
            f"{TOPIC}: decisions expire, as the topic has cleanup.policy={settings['cleanup.policy']} and"
            f" {limit}={settings[limit]}, and batches whose decisions are removed would be written again; run"
            f" kafka-configs.sh --bootstrap-server {servers} --entity-type topics --entity-name {TOPIC} --alter"
            " --add-config cleanup.policy=compact"
        )


def expiring_setting(settings: Mapping[str, str]) -> str | None:
    """Return the setting by which the newest record of a key expires; None: no setting."""
    if DELETE not in (each.strip() for each in settings[POLICY].split(",")):
        return None
    return next((name for name in LIMITS if not settings[name].startswith("-")), None)


async def commit_with(
    prepared: PreparedTransaction, entries: Iterable[Entry], settings: ProducerSettings
) -> PreparedTransaction:
    """Write *entries* in the transaction *prepared* or in a new one, and commit. Return the epoch for the next write.

    Raises: ProducerError: the transaction is not committed. TransactionOutcomeUnknown: the outcome is unknown.
    """
    producer = await resumed(prepared, settings)
    try:
        return await commit_entries(producer, entries)
    finally:
        await producer.close(timeout_s=0)


async def resumed(prepared: PreparedTransaction, settings: ProducerSettings) -> Producer:
    """Return a producer that continues the transaction *prepared*. Raises: the errors of `Producer.start`."""
    producer = Producer.from_config(settings.with_transactional_id(prepared.transactional_id).config())
    await producer._start_resumed(prepared)  # noqa: SLF001 - of this package
    return producer


async def commit_entries(producer: Producer, entries: Iterable[Entry]) -> PreparedTransaction:
    """Write *entries* in a transaction of *producer* and commit. Return the epoch for the next write."""
    await producer.begin_transaction()
    for entry in entries:
        await producer.send(TOPIC, entry.value, entry.key, partition=PARTITION)
    await producer.commit_transaction()
    return producer._identity()  # noqa: SLF001 - of this package


async def _existing(client: Client) -> bytes:
    """Return the id of the topic, which is created if it does not exist."""
    topic_id = await client.topic_id(TOPIC)
    if topic_id is not None:
        return topic_id
    with suppress(errors.TopicAlreadyExists):  # another driver has just created it
        await client.create_topic(TOPIC, PARTITION + 1, TOPIC_CONFIG)
    return await client.topic_id(TOPIC) or NO_TOPIC_ID
