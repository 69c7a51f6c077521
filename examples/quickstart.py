"""Send records, and learn where they are.

If there is no Kafka on localhost:9092, run `aioproducer broker` in another terminal. Then:

    python examples/quickstart.py
"""

from __future__ import annotations

import asyncio
import sys

from aioproducer import Producer


async def main(bootstrap_servers: str) -> None:
    """Send one record and wait for it, then a hundred at a time."""
    # Entering connects. Leaving waits until everything that was sent is acknowledged, or has failed.
    async with Producer(bootstrap_servers) as producer:
        # The usual way: when this returns, the record is in the log of all in-sync replicas.
        sent = await producer.send(
            "orders",
            b'{"order": 1, "total": 41.50}',
            key=b"customer-7",  # records with the same key stay in order, in the same partition
            headers={"trace": b"9f1c"},
        )
        print(f"acknowledged: {sent.topic}, partition {sent.partition}, offset {sent.offset}")

        # Many at a time: `enqueue` does not wait for the broker. Each Future gets its record's outcome.
        futures = [
            await producer.enqueue("orders", b'{"order": %d}' % number, key=b"customer-%d" % (number % 3))
            for number in range(2, 102)
        ]
        outcomes = await asyncio.gather(*futures)
        print(f"acknowledged: {len(outcomes)} more")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
