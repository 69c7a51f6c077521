"""The topic of decisions: made when it is first read, read to its end, written to in a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer.errors import ProducerError, TopicAlreadyExists
from aioproducer.producer import Producer
from aioproducer.spark.decision_records import PARTITION, TOPIC, TOPIC_CONFIG, DecisionView, Entry
from aioproducer.spark.delivery import DeliveryError
from aioproducer.spark.messages import log_topic_unchecked

if TYPE_CHECKING:
    from aioproducer._core.transactions.transaction_types import PreparedTransaction
    from aioproducer._topic_client import Client
    from aioproducer.spark.sink_options import ProducerSettings

POLICY: Final = "cleanup.policy"
DELETE: Final = "delete"
LIMITS: Final = ("retention.ms", "retention.bytes")
"""Settings of topics with cleanup.policy=delete; a negative value is unlimited."""
SETTINGS: Final = (POLICY, *LIMITS)


async def read_on(view: DecisionView, client: Client) -> None:
    """Read the log from where *view* is to its end.

    Raises: DeliveryError: the log has lost its end. ProducerError: it cannot be read.
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


async def check_kept(client: Client, servers: str) -> None:
    """Check that the topic keeps its records; log a warning if this client may not describe its settings.

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
    if (limit := removing(settings)) is not None:
        raise DeliveryError(
            f"{TOPIC}: decisions expire, as the topic has cleanup.policy={settings['cleanup.policy']} and"
            f" {limit}={settings[limit]}, and batches whose decisions are removed would be written again; run"
            f" kafka-configs.sh --bootstrap-server {servers} --entity-type topics --entity-name {TOPIC} --alter"
            " --add-config cleanup.policy=compact"
        )


def removing(settings: Mapping[str, str]) -> str | None:
    """Return the setting by which the newest record of a key expires; None: no setting."""
    if DELETE not in (each.strip() for each in settings[POLICY].split(",")):
        return None
    return next((name for name in LIMITS if not settings[name].startswith("-")), None)


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


async def _existing(client: Client) -> bytes:
    """Return the id of the topic, which is created if it does not exist."""
    topic_id = await client.topic_id(TOPIC)
    if topic_id is not None:
        return topic_id
    with suppress(TopicAlreadyExists):  # another driver has created it a moment ago
        await client.create_topic(TOPIC, PARTITION + 1, TOPIC_CONFIG)
    return await client.topic_id(TOPIC) or NO_TOPIC_ID
