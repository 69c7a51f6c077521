"""Read, process, write, exactly once: aiokafka's consumer and our producer (KIP-447).

    python examples/exactly_once_aiokafka.py localhost:9092 1

It makes a parcel of each order. Any number of these share the orders; each has a name of its own, its second argument.

aiokafka's consumer needs two things more than others do. It rebalances in the background, so the group's metadata are
taken before the records. And it does not wait for offsets that are still being committed (KIP-447's RequireStable): so
whoever gives a partition away waits until its last offset is there for all to see, and a transaction that hangs is
aborted, by its timeout, before the group goes on without the consumer.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

from aioproducer import CommitFailed, GroupMetadata, Producer
from aioproducer.compat.aiokafka import group_metadata_of

AT_A_TIME = 100
SESSION_MS = 45_000
TRANSACTION_MS = 20_000
"""Together with the 10 s after which a coordinator looks again, less than the session."""


class Shipping(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    """Makes a parcel of each order."""

    def __init__(self, producer: Producer, consumer: Any) -> None:
        self.producer = producer
        self.consumer = consumer
        self.busy = asyncio.Lock()
        self.given_away = 0
        self.committed: dict[Any, int] = {}

    async def run(self) -> None:
        """Go on until it is killed."""
        while True:
            group, given_away = group_metadata_of(self.consumer), self.given_away
            orders = await self.consumer.getmany(timeout_ms=500, max_records=AT_A_TIME)
            async with self.busy:
                if orders and given_away == self.given_away:
                    await self.ship(group, orders)
                elif orders:  # they may be somebody else's now
                    await self.rewind()

    async def ship(self, group: GroupMetadata, orders: dict[Any, list[Any]]) -> None:
        """Make parcels of *orders* and note how far we have come, all of it or nothing."""
        offsets = {partition: records[-1].offset + 1 for partition, records in orders.items()}
        try:
            async with self.producer.transaction() as transaction:
                for order in (each for records in orders.values() for each in records):
                    _ = await self.producer.enqueue("parcels", b"parcel of " + order.value, key=order.key)
                await transaction.send_offsets(offsets, group)
        except CommitFailed:  # aborted: read them again, whoever has them now
            await self.rewind()
        else:
            self.committed |= offsets

    async def rewind(self) -> None:
        """Go back to what is committed."""
        for partition in self.consumer.assignment():
            offset = await self.consumer.committed(partition)
            if partition not in self.consumer.assignment():  # it is somebody else's now
                continue
            if offset is None:
                await self.consumer.seek_to_beginning(partition)
            else:
                self.consumer.seek(partition, offset)

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        """Give partitions away once others can see how far we have come."""
        self.given_away += 1
        async with self.busy:
            for partition in revoked & self.committed.keys():
                offset = self.committed.pop(partition)
                while (await self.consumer.committed(partition) or 0) < offset:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.01)

    async def on_partitions_assigned(self, assigned: set[Any]) -> None:
        """Do nothing."""


async def main(servers: str, name: str) -> None:
    """Run until it is killed. Whatever it does not expect ends it: started again, it goes on where it stood."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id="shipping",
        auto_offset_reset="earliest",
        enable_auto_commit=False,  # the offsets belong to the transaction
        isolation_level="read_committed",
        session_timeout_ms=SESSION_MS,
    )
    async with (
        Producer(
            servers, transactional_id=f"shipping-{name}", transaction_timeout_ms=TRANSACTION_MS
        ) as producer,
        consumer,
    ):
        shipping = Shipping(producer, consumer)
        consumer.subscribe(["orders"], listener=shipping)
        await shipping.run()


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] or ["localhost:9092", "1"])))
