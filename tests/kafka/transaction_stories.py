"""What transactional producers do, right and wrong, in requests: told to any cluster, and answered in codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tests.kafka.raw_transactions import RawProducer

TIMEOUT_MS: Final = 300
OVERDUE_S: Final = 1.2
"""Longer than that timeout, and than the pause after which a broker looks again."""


@dataclass
class Teller:
    """Tells one story to one cluster, and writes down what it was answered."""

    bootstrap_servers: str
    transactional_id: str
    topic: str
    told: list[tuple[str, int, int]] = field(default_factory=list)
    """What was asked, the code of the answer, and how far the epoch went with it."""
    producers: list[RawProducer] = field(default_factory=list)

    async def producer(self) -> RawProducer:
        """Return another producer with the id, which has not asked for anything yet."""
        raw = await RawProducer.of(self.bootstrap_servers, self.transactional_id)
        self.producers.append(raw)
        for group in (None, "known", "unknown"):
            assert await raw.find(group=group) == 0
        return raw

    async def note(self, what: str, raw: RawProducer, answered: Awaitable[int]) -> None:
        """Write down what *raw* is answered."""
        epoch = raw.epoch
        self.told.append((what, await answered, raw.epoch - epoch))

    async def begin(self, raw: RawProducer, *partitions: int) -> None:
        """Add partitions, where that is not done by writing to them."""
        if raw.transaction_version < 2:
            await self.note("add", raw, raw.add(self.topic, *partitions))

    async def write(self, raw: RawProducer, value: bytes = b"value", partition: int = 0) -> None:
        """Write one record."""
        await self.note("produce", raw, raw.produce(self.topic, partition, value))

    async def end(self, raw: RawProducer, *, committed: bool = True, behind: int = 0) -> None:
        """End the transaction, as of an epoch that many back."""
        what = f"{'commit' if committed else 'abort'}, {behind} behind"
        await self.note(what, raw, raw.end(committed=committed, epoch=raw.epoch - behind))

    async def close(self) -> None:
        for raw in self.producers:
            await raw.close()


Story: TypeAlias = Callable[[Teller], Awaitable[None]]


async def some_are_committed_and_some_aborted(tell: Teller) -> None:
    raw = await tell.producer()
    await tell.note("init", raw, raw.init())
    for committed in (True, False, True, False):
        await tell.begin(raw, 0, 1)
        await tell.write(raw, b"committed" if committed else b"aborted")
        await tell.write(raw, b"committed" if committed else b"aborted", 1)
        await tell.end(raw, committed=committed)
    await tell.note("init", raw, raw.init())


async def an_end_is_said_again_in_every_way(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    await tell.end(raw)
    await tell.begin(raw, 0)
    await tell.write(raw)
    ends: Sequence[tuple[bool, int]] = [
        *((True, 0), (True, 0), (True, 1), (False, 1), (False, 0), (True, 0), (False, 1)),
        *((True, 1), (False, 0), (False, 1), (True, 1), (True, 0)),
    ]
    for committed, behind in ends:
        await tell.end(raw, committed=committed, behind=behind)


async def nothing_is_ended(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    for version in (4, 5):
        for committed in (True, False):
            end = raw.end(committed=committed, version=version)
            await tell.note(f"end v{version} committed={committed}", raw, end)


async def the_other_version_ends_it(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    await tell.begin(raw, 0)
    await tell.write(raw)
    await tell.note("commit", raw, raw.end(committed=True, version=4 if raw.transaction_version == 2 else 5))
    await tell.end(raw)


async def a_successor_takes_over(tell: Teller) -> None:
    first, second = await tell.producer(), await tell.producer()
    await first.init()
    await tell.begin(first, 0)
    await tell.write(first, b"aborted")
    await tell.note("successor", second, second.init())
    await tell.write(first)
    await tell.end(first)
    await tell.end(first, committed=False)
    await tell.note("add", first, first.add(tell.topic, 1))
    await tell.note("group", first, first.add_group("known"))
    for version in (4, 5):
        offset = first.commit_offset("known", tell.topic, 0, 1, version=version)
        await tell.note(f"offset v{version}", first, offset)
    await tell.note("own", first, first.init(own=True))


async def a_successor_has_begun_when_the_old_one_asks_for_its_next_epoch(tell: Teller) -> None:
    """While a transaction is open the coordinator compares the producer id alone, and aborts it."""
    first, second = await tell.producer(), await tell.producer()
    await first.init()
    await tell.begin(first, 0)
    await tell.write(first, b"aborted")
    await tell.note("successor", second, second.init())
    await tell.begin(second, 0)
    await tell.write(second, b"aborted too")
    await tell.end(first, committed=False)
    await tell.note("own", first, first.init(own=True))
    await tell.write(second, b"no")
    await tell.end(second)
    await tell.end(second, committed=False)


async def it_asks_for_its_own_next_epoch(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    await tell.note("own", raw, raw.init(own=True))
    for behind in (1, 0, 1, 2):
        raw.epoch -= behind
        await tell.note(f"own, {behind} behind", raw, raw.init(own=True))
    raw.producer_id += 1
    await tell.note("another's", raw, raw.init(own=True))


async def it_asks_for_its_own_next_epoch_in_a_transaction(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    await tell.begin(raw, 0)
    await tell.write(raw, b"aborted")
    await tell.note("own", raw, raw.init(own=True))


async def it_has_another_id(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    raw.producer_id += 1
    await wrong_for_all(tell, raw)


async def it_has_an_epoch_that_has_not_come(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    raw.epoch += 1
    await wrong_for_all(tell, raw)


async def nobody_has_used_the_id(tell: Teller) -> None:
    raw = await tell.producer()
    raw.producer_id, raw.epoch = 1, 0
    await wrong_for_all(tell, raw)


async def wrong_for_all(tell: Teller, raw: RawProducer) -> None:
    await tell.note("add", raw, raw.add(tell.topic, 0))
    await tell.note("group", raw, raw.add_group("known"))
    for version in (11, 12):
        await tell.note(f"produce v{version}", raw, raw.produce(tell.topic, 0, b"no", version=version))
    for version in (4, 5):
        await tell.note(f"abort v{version}", raw, raw.end(committed=False, version=version))
        offset = raw.commit_offset("known", tell.topic, 0, 1, version=version)
        await tell.note(f"offset v{version}", raw, offset)


async def a_partition_was_not_added(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    for version in (3, 9, 10, 11):
        await tell.note(f"produce v{version}", raw, raw.produce(tell.topic, 0, b"no", version=version))
    await tell.note("no such partition", raw, raw.add(tell.topic, 0, 9))
    await tell.note("no such topic", raw, raw.add("nothing", 0))
    await tell.note("add", raw, raw.add(tell.topic, 0))
    await tell.note("produce v11", raw, raw.produce(tell.topic, 0, b"value", version=11))
    await tell.note("another", raw, raw.produce(tell.topic, 1, b"no", version=11))
    await tell.note("nameless", raw, raw.produce(tell.topic, 0, b"no", named=False))
    await tell.end(raw)


async def batches_are_no_part_of_the_transaction(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    await tell.note("outside", raw, raw.produce(tell.topic, 0, b"value", transactional=False))
    await tell.note("nameless", raw, raw.produce(tell.topic, 0, b"value", transactional=False, named=False))
    await tell.begin(raw, 0)
    await tell.write(raw)
    await tell.note("inside", raw, raw.produce(tell.topic, 0, b"no", transactional=False))
    await tell.end(raw)


async def sequences_are_wrong(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    await raw.add(tell.topic, 0, 1)
    for version, sequence in ((12, 5), (11, 5), (11, 0), (11, 1), (11, 1), (11, 3)):
        batch = raw.produce(tell.topic, 0, b"%d" % sequence, sequence=sequence, version=version)
        await tell.note(f"sequence {sequence} v{version}", raw, batch)
    await tell.note("any sequence", raw, raw.produce(tell.topic, 1, b"5", sequence=5, version=11))
    await tell.end(raw)
    await tell.begin(raw, 0)
    for sequence in (7, 2, 1, 0, 1, 2):
        batch = raw.produce(tell.topic, 0, b"%d" % sequence, sequence=sequence)
        await tell.note(f"then sequence {sequence}", raw, batch)
    await tell.end(raw)


async def a_refused_batch_adds_its_partition(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    await tell.note("from 5", raw, raw.produce(tell.topic, 0, b"no", sequence=5, version=12))
    await tell.end(raw)


async def a_zombie_writes_after_the_end(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    await tell.begin(raw, 0)
    await tell.write(raw)
    await tell.end(raw)
    successor = await tell.producer()
    await tell.note("init", successor, successor.init())  # waits for the markers
    for version in (11, 12):
        for partition in (0, 1):
            batch = raw.produce(tell.topic, partition, b"no", sequence=1, version=version)
            await tell.note(f"produce {partition} v{version}", raw, batch)


async def offsets_are_committed(tell: Teller) -> None:
    raw = await tell.producer()
    await raw.init()
    for version in (0, 2, 3, 4):
        offset = raw.commit_offset("known", tell.topic, 0, 1, version=version)
        await tell.note(f"not added v{version}", raw, offset)
    await tell.note("group", raw, raw.add_group(f"new-{tell.transactional_id}"))
    for member, generation in (("m", 3), ("", 3), ("m", -1), ("", 3), ("m", 3), ("", -1)):
        offset = raw.commit_offset(
            f"new-{tell.transactional_id}", tell.topic, 0, 1, member=member, generation=generation
        )
        await tell.note(f"member {member!r} generation {generation}", raw, offset)
    await tell.note("no partition", raw, raw.commit_offset(f"new-{tell.transactional_id}", tell.topic, 9, 1))
    await tell.end(raw)


async def timeouts_are_out_of_range(tell: Teller) -> None:
    raw = await tell.producer()
    for timeout_ms in (0, -1, 900_001, 900_000):
        await tell.note(f"timeout {timeout_ms}", raw, raw.init(timeout_ms=timeout_ms))


async def overdue(tell: Teller) -> RawProducer:
    raw = await tell.producer()
    await raw.init(timeout_ms=TIMEOUT_MS)
    await tell.begin(raw, 0)
    await tell.write(raw, b"aborted")
    await asyncio.sleep(OVERDUE_S)
    return raw


async def it_comes_back_after_the_timeout(tell: Teller) -> None:
    raw = await overdue(tell)
    await tell.write(raw, b"no")
    await tell.note("add", raw, raw.add(tell.topic, 0))
    await tell.end(raw)
    await tell.end(raw, committed=False)
    await tell.begin(raw, 0)
    await tell.write(raw, b"value")
    await tell.end(raw)


async def it_initialises_after_the_timeout(tell: Teller) -> None:
    raw = await overdue(tell)
    await tell.note("own", raw, raw.init(own=True))


STORIES: Final[Sequence[Story]] = (
    some_are_committed_and_some_aborted,
    an_end_is_said_again_in_every_way,
    nothing_is_ended,
    the_other_version_ends_it,
    a_successor_takes_over,
    a_successor_has_begun_when_the_old_one_asks_for_its_next_epoch,
    it_asks_for_its_own_next_epoch,
    it_asks_for_its_own_next_epoch_in_a_transaction,
    it_has_another_id,
    it_has_an_epoch_that_has_not_come,
    nobody_has_used_the_id,
    a_partition_was_not_added,
    batches_are_no_part_of_the_transaction,
    sequences_are_wrong,
    a_refused_batch_adds_its_partition,
    a_zombie_writes_after_the_end,
    offsets_are_committed,
    timeouts_are_out_of_range,
    it_comes_back_after_the_timeout,
    it_initialises_after_the_timeout,
)
