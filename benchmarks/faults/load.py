"""A client under a steady load, in a process of its own: what it was asked to do, and what it said became of it.

Run by `benchmarks.faults.play`, which speaks to it over its pipes:

    us: {"began_at": …, "started_at": …}     the client is started, the load begins
    it: any line                             enough, the fault is over
    us: [[partition, number, …], …]          every record, then the end

Times are of the monotonic clock, which all processes of a machine share.
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
    """Counts the calls for the partition."""
    probe: bool
    """Whether it was sent after all others had their outcome, to see if the producer still lives."""
    called_at: float
    taken_at: float | None = None
    """When the call returned."""
    resolved_at: float | None = None
    offset: int | None = None
    error: str = ""
    possibly_persisted: bool = False

    @property
    def value(self) -> bytes:
        """What it is recognised by in the log."""
        return b"%d/%d/" % (self.partition, self.number)

    def settle(self, outcome: Outcome) -> None:
        """Note the outcome; the first one counts."""
        if self.resolved_at is None:
            self.offset, self.error, self.possibly_persisted = outcome
            self.resolved_at = time.monotonic()


class Load:
    """Calls for every partition from a task of its own, so that a partition that blocks holds up no other."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = [count() for _ in range(terms.PARTITIONS)]
        self.sent: list[Sent] = []

    async def run(self, enough: asyncio.Event) -> None:
        """Make calls until it is *enough*, then wait for their outcomes, but not beyond what is promised."""
        tasks = [asyncio.create_task(self._run(each, enough)) for each in range(terms.PARTITIONS)]
        await enough.wait()
        _, stuck = await asyncio.wait(tasks, timeout=terms.DELIVERY_TIMEOUT_S + terms.GRACE_S)
        for task in stuck:
            task.cancel()
        await self._outcomes()

    async def probe(self) -> None:
        """Make one call more for each partition, and wait for its outcome."""
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
        except Exception as error:  # noqa: BLE001 - whatever the client raises is its answer
            sent.settle(failed(error))
        sent.taken_at = time.monotonic()

    async def _outcomes(self) -> None:
        patience_until = time.monotonic() + terms.DELIVERY_TIMEOUT_S + terms.GRACE_S
        while self._open() and time.monotonic() < patience_until:  # noqa: ASYNC110 - set in another thread, too
            await asyncio.sleep(terms.PAUSE_S)

    def _open(self) -> bool:
        return any(each.resolved_at is None for each in self.sent)


async def main(name: str, servers: str) -> None:
    """Play the part of one client."""
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
    os._exit(0)  # how a client closes is not the question, and one that is stuck might not


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
