"""Trace a single `await producer.send(…)`: the files of `aioproducer/` that it calls, in order.

    python -m benchmarks.trace_send

The producer is warm (connected, with an identity, and an acknowledged record); the broker is in another thread, which
is not traced. A test compares docs/design.md with this trace.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import aioproducer
from aioproducer import Producer
from aioproducer.testing import ThreadedCluster

PACKAGE = Path(aioproducer.__file__).parent
TOPIC = "orders"


async def traced_send() -> Counter[str]:
    """Return the number of calls per file of a single send, by path in the package, in the order of the first call."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            calls[path.relative_to(PACKAGE).as_posix()] += 1

    with ThreadedCluster(topics={TOPIC: 1}) as cluster:
        async with Producer(cluster.bootstrap_servers) as producer:
            for _ in range(2):
                await producer.send(TOPIC, b"warm")
            sys.setprofile(note)
            try:
                await producer.send(TOPIC, b"value")
            finally:
                sys.setprofile(None)
    return calls


def main() -> None:
    """Print the files in order, with the number of calls per file."""
    calls = asyncio.run(traced_send())
    for path, count in calls.items():
        print(f"{count:4}  {path}")
    print(f"{sum(calls.values()):4}  calls in {len(calls)} files")


if __name__ == "__main__":
    main()
