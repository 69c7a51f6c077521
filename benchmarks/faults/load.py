"""A client under a steady load, in a separate process: its calls and their outcomes.

`benchmarks.faults.run` starts the process and exchanges lines over its pipes:

    child: {"began_at": …, "started_at": …}     the client has started, the load begins
    parent: any line                            end of the fault, the load stops
    child: [[partition, number, …], …]          every record; the process then exits

All times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import astuple, dataclass
from itertools import count

from benchmarks.faults import terms
from benchmarks.faults.clients import CLIENTS, Client, Outcome, failed


@dataclass(slots=True)
class Sent:
    """A call, and its outcome."""

    partition: int
    number: int
    """Number of the call among the calls for the partition."""
    probe: bool
    """True for a record sent after all other outcomes, to test whether the producer still works."""
    called_at: float
    taken_at: float | None = None
    """Time at which the call returned."""
    resolved_at: float | None = None
    offset: int | None = None
    error: str = ""
    possibly_persisted: bool = False

    @property
    def value(self) -> bytes:
        """Start of the value, unique in the log."""
        return b"%d/%d/" % (self.partition, self.number)

    def settle(self, outcome: Outcome) -> None:
        """Store the first *outcome*."""
        if self.resolved_at is None:
            self.offset, self.error, self.possibly_persisted = outcome
            self.resolved_at = time.monotonic()


class Load:
    """Load with one task per partition, so that a blocked partition does not delay other partitions."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = [count() for _ in range(terms.PARTITIONS)]
        self.sent: list[Sent] = []

    async def run(self, enough: asyncio.Event) -> None:
        """Send until *enough* is set, then wait for the outcomes, at most for the delivery timeout and a grace period."""
        tasks = [asyncio.create_task(self._run(each, enough)) for each in range(terms.PARTITIONS)]
        await enough.wait()
        _, stuck = await asyncio.wait(tasks, timeout=terms.DELIVERY_TIMEOUT_S + terms.GRACE_S)
        for task in stuck:
            task.cancel()
        await self._outcomes()

    async def probe(self) -> None:
        """Send one more record to each partition, and wait for the outcomes."""
        calls = (self._send(partition, probe=True) for partition in range(terms.PARTITIONS))
        await asyncio.wait([asyncio.create_task(call) for call in calls], timeout=terms.DELIVERY_TIMEOUT_S)
        await self._outcomes()

    async def _run(self, partition: int, enough: asyncio.Event) -> None:
        due_at = time.monotonic()
        while not enough.is_set():
            for _ in range(terms.BURST):
                await self._send(partition, probe=False)
            due_at += terms.PAUSE_S
            await asyncio.sleep(max(0.0, due_at - time.monotonic()))

    async def _send(self, partition: int, *, probe: bool) -> None:
        sent = Sent(partition, next(self._numbers[partition]), probe, called_at=time.monotonic())
        self.sent.append(sent)
        try:
            await self._client.send(partition, sent.value.ljust(terms.VALUE_BYTES, b"."), sent.settle)
        except Exception as error:  # noqa: BLE001 - every exception of the client is an outcome
            sent.settle(failed(error))
        sent.taken_at = time.monotonic()

    async def _outcomes(self) -> None:
        patience_until = time.monotonic() + terms.DELIVERY_TIMEOUT_S + terms.GRACE_S
        while self._open() and time.monotonic() < patience_until:  # noqa: ASYNC110 - another thread may set the outcome
            await asyncio.sleep(terms.PAUSE_S)

    def _open(self) -> bool:
        return any(each.resolved_at is None for each in self.sent)


async def main(name: str, servers: str) -> None:
    """Run the load with one client."""
    began_at = time.monotonic()
    client = CLIENTS[name](servers)
    await client.start()
    load, loop, enough = Load(client), asyncio.get_running_loop(), asyncio.Event()

    def hear() -> None:
        loop.remove_reader(sys.stdin)
        enough.set()

    loop.add_reader(sys.stdin, hear)
    print(json.dumps({"began_at": began_at, "started_at": time.monotonic()}), flush=True)
    await load.run(enough)
    await load.probe()
    print(json.dumps([astuple(each) for each in load.sent]), flush=True)
    os._exit(0)  # skip the close, which may hang


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
