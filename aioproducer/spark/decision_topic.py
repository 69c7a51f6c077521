"""The topic of decisions: made when it is first read, read to its end, written to in a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from aioproducer.errors import TopicAlreadyExists
from aioproducer.producer import Producer
from aioproducer.spark.decision_records import PARTITION, TOPIC, TOPIC_CONFIG, DecisionView, Entry
from aioproducer.spark.delivery import DeliveryError

if TYPE_CHECKING:
    from aioproducer.spark.sink_options import ProducerSettings
    from aioproducer.topic_client import Client
    from aioproducer.transactions.prepared_transaction import PreparedTransaction


async def read_on(view: DecisionView, client: Client) -> None:
    """Read the log from where *view* is to its end.

    Raises: DeliveryError: the log has lost its end. ProducerError: it cannot be read.
    """
    await _make_sure_it_is_there(client)
    end = await client.end_offset(TOPIC, PARTITION)
    if end < view.offset:
        raise DeliveryError(
            f"{TOPIC} ends at offset {end}, and was read up to {view.offset}: decisions are lost, and without them"
            " nobody can tell what is written"
        )
    start = max(view.offset, await client.first_offset(TOPIC, PARTITION))
    async for batches in client.batches(TOPIC, PARTITION, start, end):
        for batch in batches:
            view.take(batch)


async def commit_with(
    prepared: PreparedTransaction, entries: Iterable[Entry], settings: ProducerSettings
) -> PreparedTransaction:
    """Write *entries* in the transaction that is *prepared*, or may begin, and commit it; return what to go on under.

    Raises: ProducerError, and it is not committed; but TransactionOutcomeUnknown: nobody knows.
    """
    producer = await going_on(prepared, settings)
    try:
        return await commit_entries(producer, entries)
    finally:
        await producer.close(timeout_s=0)


async def going_on(prepared: PreparedTransaction, settings: ProducerSettings) -> Producer:
    """Return a producer that goes on where *prepared* was left. Raises: as `Producer.start`."""
    producer = Producer.from_config(settings.with_transactional_id(prepared.transactional_id).config())
    await producer._go_on(prepared)  # noqa: SLF001 - our own
    return producer


async def commit_entries(producer: Producer, entries: Iterable[Entry]) -> PreparedTransaction:
    """Do as `commit_with`, with a *producer* that has gone on there, or has done this before."""
    await producer.begin_transaction()
    for entry in entries:
        await producer.send(TOPIC, entry.value, entry.key, partition=PARTITION)
    await producer.commit_transaction()
    return producer._identity()  # noqa: SLF001 - our own


async def _make_sure_it_is_there(client: Client) -> None:
    if await client.is_there(TOPIC):
        return
    with suppress(TopicAlreadyExists):  # by somebody else, a moment ago
        await client.create_topic(TOPIC, PARTITION + 1, TOPIC_CONFIG)
