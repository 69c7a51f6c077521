"""Read, process, write, exactly once: kafka-python's consumer and our producer (KIP-447).

    python examples/exactly_once_kafka_python.py localhost:9092 1

It makes a parcel of each order. Any number of these share the orders; each has a name of its own, its second argument.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from kafka import KafkaConsumer

from aioproducer import CommitFailed, Producer

AT_A_TIME = 100
SESSION_MS = 45_000


async def main(servers: str, name: str) -> None:
    """Run until it is killed. Whatever it does not expect ends it: started again, it goes on where it stood."""
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="shipping",
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,  # after so long others have the orders of one that is gone
        enable_auto_commit=False,  # the offsets belong to the transaction
        isolation_level="read_committed",  # also: wait for offsets that are being committed
        max_poll_records=AT_A_TIME,
    )
    try:
        async with Producer(servers, transactional_id=f"shipping-{name}") as producer:
            while True:
                # Before the records: after a rebalance the group refuses those of before.
                group = consumer.group_metadata()
                orders = await asyncio.to_thread(consumer.poll, 500)
                if orders:
                    await ship(producer, consumer, group, orders)
    finally:
        await asyncio.to_thread(consumer.close)


async def ship(producer: Producer, consumer: Any, group: Any, orders: dict[Any, list[Any]]) -> None:
    """Make parcels of *orders* and note how far we have come, all of it or nothing."""
    if group.generation_id < 0:  # it was no member yet
        return await asyncio.to_thread(rewind, consumer)
    try:
        async with producer.transaction() as transaction:
            for order in (each for records in orders.values() for each in records):
                _ = await producer.enqueue("parcels", b"parcel of " + order.value, key=order.key)
            await transaction.send_offsets(
                {partition: records[-1].offset + 1 for partition, records in orders.items()}, group
            )
    except CommitFailed:  # aborted: read them again, whoever has them now
        await asyncio.to_thread(rewind, consumer)
    return None


def rewind(consumer: Any) -> None:
    """Go back to what is committed."""
    for partition in consumer.assignment():
        offset = consumer.committed(partition)
        if offset is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, offset)


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] or ["localhost:9092", "1"])))
