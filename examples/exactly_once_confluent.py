"""Read, process, write, exactly once: confluent-kafka's consumer and our producer (KIP-447).

    python examples/exactly_once_confluent.py localhost:9092 1

It makes a parcel of each order. Any number of these share the orders; each has a name of its own, its second argument.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from aioproducer import CommitFailed, GroupMetadata, Producer

AT_A_TIME = 100
SESSION_MS = 45_000


async def main(servers: str, name: str) -> None:
    """Run until it is killed. Whatever it does not expect ends it: started again, it goes on where it stood."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "shipping",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,  # after so long others have the orders of one that is gone
            "enable.auto.commit": False,  # the offsets belong to the transaction
            "isolation.level": "read_committed",  # also: wait for offsets that are being committed
        }
    )
    consumer.subscribe(["orders"])
    try:
        async with Producer(servers, transactional_id=f"shipping-{name}") as producer:
            while True:
                # Before the records: after a rebalance the group refuses those of before.
                group = GroupMetadata.of(await asyncio.to_thread(consumer.consumer_group_metadata))
                orders = await asyncio.to_thread(consumer.consume, AT_A_TIME, 0.5)
                if orders:
                    await ship(producer, consumer, group, [checked(order) for order in orders])
    finally:
        await asyncio.to_thread(consumer.close)


async def ship(producer: Producer, consumer: Consumer, group: GroupMetadata, orders: list[Message]) -> None:
    """Make parcels of *orders* and note how far we have come, all of it or nothing."""
    if group.generation_id < 0:  # it was no member yet
        return await asyncio.to_thread(rewind, consumer)
    try:
        async with producer.transaction() as transaction:
            for order in orders:
                _ = await producer.enqueue("parcels", b"parcel of " + (order.value() or b""), key=order.key())
            await transaction.send_offsets(next_offsets(orders), group)
    except CommitFailed:  # aborted: read them again, whoever has them now
        await asyncio.to_thread(rewind, consumer)
    return None


def checked(order: Message) -> Message:
    """Return *order*, unless it is the news of an error."""
    if (error := order.error()) is not None:
        raise KafkaException(error)
    return order


def next_offsets(orders: Iterable[Message]) -> dict[tuple[str | None, int | None], int]:
    """Return where to read on, for each partition: the last of them counts."""
    return {(order.topic(), order.partition()): (order.offset() or 0) + 1 for order in orders}


def rewind(consumer: Consumer) -> None:
    """Go back to what is committed."""
    for at in consumer.committed(consumer.assignment(), timeout=30):
        offset = at.offset if at.offset >= 0 else OFFSET_BEGINNING
        try:
            consumer.seek(TopicPartition(at.topic, at.partition, offset))
        except KafkaException:  # it is somebody else's now
            continue


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] or ["localhost:9092", "1"])))
