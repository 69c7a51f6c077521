"""Transactions of numbered records: their outcomes, compared with the records that other clients read."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, TypeAlias

from aioproducer import (
    GroupMetadata,
    Producer,
    ProducerError,
    RecordMetadata,
    TransactionAdmin,
    TransactionOutcomeUnknown,
)
from tests.kafka.readback import read_with_librdkafka

PARTITIONS: Final = 3
TIMEOUT_S: Final = 150
"""Whoever waits longer for a call waits in vain."""
STEPS: Final = ("begun", "taken", "acknowledged", "offsets", "ending", "ended")
"""What a transaction goes through."""

Step: TypeAlias = Callable[[str], Awaitable[object]]


class Outcome(Enum):
    """Outcome of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    FAILED = "failed"
    """It raised: nothing of it is committed."""
    FATAL = "fatal"
    """Likewise, and the producer is at its end."""
    UNTOLD = "untold"
    """Nobody was told: it was cancelled, or the process is gone. All of it is visible, or nothing."""


class Ledger:
    """The transactions of one topic, by any number of producers."""

    def __init__(self, servers: str, topic: str, *, records: int = 10) -> None:
        self.servers = servers
        self.topic = topic
        self.told: list[Outcome] = []
        self.errors: list[ProducerError | None] = []
        self._records = records
        self._changed = asyncio.Condition()

    def open(self) -> int:
        """Return the number of a new transaction."""
        self.told.append(Outcome.UNTOLD)
        self.errors.append(None)
        return len(self.told) - 1

    def records(self, number: int) -> list[bytes]:
        """Return the records of a transaction; each goes to the next partition."""
        return [f"{number}/{index}".encode() for index in range(self._records)]

    async def fill(self, producer: Producer, number: int) -> list[asyncio.Future[RecordMetadata]]:
        """Let *producer* take the records of a transaction."""
        return [
            await producer.enqueue(self.topic, value, partition=index % PARTITIONS)
            for index, value in enumerate(self.records(number))
        ]

    async def transact(self, producer: Producer, *, abort: bool = False, at: Step | None = None) -> Outcome:
        """Write a transaction, with offsets, and end it; *at* is awaited at each step. Note what is told of it."""
        number = self.open()
        async with asyncio.timeout(TIMEOUT_S):
            try:
                await self._write(producer, number, at)
                self.told[number] = await self._end(producer, at, abort=abort)
            except ProducerError as error:
                self.errors[number] = error
                self.told[number] = await self._given_up(producer, error, number)
        if at is not None:
            await at("ended")
        async with self._changed:
            self._changed.notify_all()
        return self.told[number]

    async def run(self, producer: Producer, done: asyncio.Event) -> None:
        """Write one transaction after the other, every third of which is aborted, until all is *done*."""
        while not done.is_set():
            outcome = await self.transact(producer, abort=len(self.told) % 3 == 2)
            if outcome is Outcome.FATAL:
                raise AssertionError(
                    f"{producer.config.transactional_id} has failed: {producer.state}"
                ) from next(each for each in reversed(self.errors) if each is not None and each.fatal)

    async def more(self, count: int) -> None:
        """Wait until *count* more transactions have an outcome."""
        enough = self._count() + count
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: self._count() >= enough)

    def _count(self) -> int:
        return len(self.told) - self.told.count(Outcome.UNTOLD)

    async def _write(self, producer: Producer, number: int, at: Step | None) -> None:
        await producer.begin_transaction()
        if at is not None:
            await at("begun")
        futures = await self.fill(producer, number)
        if at is not None:
            await at("taken")
        for future in futures:
            await future
        if at is not None:
            await at("acknowledged")
        await producer.send_offsets_to_transaction({("in", 0): number}, GroupMetadata(f"group-{self.topic}"))
        if at is not None:
            await at("offsets")

    async def _end(self, producer: Producer, at: Step | None, *, abort: bool) -> Outcome:
        end = producer.abort_transaction if abort else producer.commit_transaction
        ending = asyncio.ensure_future(end())
        await asyncio.sleep(0)  # its first step is made
        if at is not None:
            await at("ending")
        try:
            await ending
        except TransactionOutcomeUnknown:
            await end()
        return Outcome.ABORTED if abort else Outcome.COMMITTED

    async def _given_up(self, producer: Producer, error: ProducerError, number: int) -> Outcome:
        if error.fatal:
            return Outcome.FATAL
        if not error.abortable:
            return Outcome.FAILED
        try:
            await producer.abort_transaction()
        except ProducerError as failure:
            if not failure.fatal:
                raise
            self.errors[number] = failure
            return Outcome.FATAL
        return Outcome.FAILED

    async def check(self, *ids: str) -> dict[int, int]:
        """Compare the outcomes with the visible records once *ids* are settled, and return visible records by number."""
        await settled(self.servers, *ids)
        seen = await asyncio.to_thread(
            read_with_librdkafka, self.servers, self.topic, isolation_level="read_committed"
        )
        values = Counter(each.value or b"" for each in seen)
        wrong: defaultdict[str, list[str]] = defaultdict(list)
        for value, copies in values.items():
            if copies > 1:
                wrong["doubled"].append(value.decode())
        visible = Counter(int(value.partition(b"/")[0]) for value in values)
        for number, outcome in enumerate(self.told):
            count = visible[number]
            if count not in {0, self._records}:
                wrong["half visible"].append(f"{number}, {outcome.value}: {count}")
            elif outcome is Outcome.COMMITTED and not count:
                wrong["lost: committed, and not there"].append(f"{number}")
            elif outcome in {Outcome.ABORTED, Outcome.FAILED, Outcome.FATAL} and count:
                wrong["there, and told otherwise"].append(
                    f"{number}, {outcome.value} ({self.errors[number]!r})"
                )
        assert not wrong, "; ".join(
            f"{what}: {len(which)}, e.g. {which[:5]}" for what, which in wrong.items()
        )
        return dict(visible)


async def state_of(admin: TransactionAdmin, name: str) -> str:
    """Return the state that the coordinator has an id in."""
    found = (await admin.describe(name))[name]
    return "Empty" if found is None else found.state


async def settled(servers: str, *ids: str, timeout_s: float = 30) -> None:
    """Wait until no transaction of *ids* is open, and the markers of the last ones are written."""
    deadline = time.monotonic() + timeout_s
    async with TransactionAdmin(servers) as admin:
        for name in ids:
            while (state := await state_of(admin, name)) not in {"Empty", "CompleteCommit", "CompleteAbort"}:
                assert time.monotonic() < deadline, f"{name} is still {state}"
