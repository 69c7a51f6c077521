"""Many records with one call: columns in, one outcome for all, and each record's own where it matters.

With a broker as for quickstart.py:

    python examples/bulk.py [bootstrap servers]
"""

from __future__ import annotations

import asyncio
import sys
from random import Random

from aioproducer import Producer, SendManyError


async def main(bootstrap_servers: str) -> None:
    """Send 20,000 readings, then ten of which one is too large."""
    random = Random(7)
    sensors = [b"sensor-%d" % random.randrange(50) for _ in range(20_000)]
    readings = [b'{"celsius": %.1f}' % random.gauss(21, 4) for _ in sensors]

    async with Producer(bootstrap_servers, compression_type="zstd") as producer:
        # One call instead of 20,000: no Future and no task per record. It waits for memory where it has to,
        # so the columns may be larger than the producer's buffer.
        result = await producer.send_many("readings", readings, keys=sensors)
        print(f"{result.delivered:,} of {len(result):,} readings were delivered")
        print(f"the last one is at partition {result.partition(-1)}, offset {result.offset(-1)}")

        # A record that cannot be sent fails alone; the others go.
        readings[3] = bytes(2_000_000)
        try:
            await producer.send_many("readings", readings[:10], keys=sensors[:10])
        except SendManyError as error:
            print(f"{error.result.delivered} of {len(error.result)} were delivered")
            for position, failure in error.result.failures.items():
                print(f"reading {position} was not: {type(failure).__name__}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
