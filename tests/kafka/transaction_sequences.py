"""Request sequences of transactional producers, legal and illegal, for any cluster; the answers are error codes."""

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
class Recorder:
    """Sends one sequence to one cluster, and records the answers."""

    bootstrap_servers: str
    transactional_id: str
    topic: str
    told: list[tuple[str, int, int]] = field(default_factory=list)
    """Request, error code of the answer, and the change of the epoch."""
    producers: list[RawProducer] = field(default_factory=list)

    async def producer(self) -> RawProducer:
        """Return another producer with the id, which has not asked for anything yet."""
        raw = await RawProducer.of(self.bootstrap_servers, self.transactional_id)
        self.producers.append(raw)
        for group in (None, "known", "unknown"):
            assert await raw.find(group=group) == 0
        return raw

    async def note(self, what: str, raw: RawProducer, answered: Awaitable[int]) -> None:
        """Store the answers to *raw*."""
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


RequestSequence: TypeAlias = Callable[[Recorder], Awaitable[None]]


async def commits_and_aborts(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await recorder.note("init", raw, raw.init())
    for committed in (True, False, True, False):
        await recorder.begin(raw, 0, 1)
        await recorder.write(raw, b"committed" if committed else b"aborted")
        await recorder.write(raw, b"committed" if committed else b"aborted", 1)
        await recorder.end(raw, committed=committed)
    await recorder.note("init", raw, raw.init())


async def repeated_ends(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    await recorder.end(raw)
    await recorder.begin(raw, 0)
    await recorder.write(raw)
    ends: Sequence[tuple[bool, int]] = [
        *((True, 0), (True, 0), (True, 1), (False, 1), (False, 0), (True, 0), (False, 1)),
        *((True, 1), (False, 0), (False, 1), (True, 1), (True, 0)),
    ]
    for committed, behind in ends:
        await recorder.end(raw, committed=committed, behind=behind)


async def end_without_transaction(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    for version in (4, 5):
        for committed in (True, False):
            end = raw.end(committed=committed, version=version)
            await recorder.note(f"end v{version} committed={committed}", raw, end)


async def end_in_the_other_version(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    await recorder.begin(raw, 0)
    await recorder.write(raw)
    await recorder.note(
        "commit", raw, raw.end(committed=True, version=4 if raw.transaction_version == 2 else 5)
    )
    await recorder.end(raw)


async def successor_takes_over(recorder: Recorder) -> None:
    first, second = await recorder.producer(), await recorder.producer()
    await first.init()
    await recorder.begin(first, 0)
    await recorder.write(first, b"aborted")
    await recorder.note("successor", second, second.init())
    await recorder.write(first)
    await recorder.end(first)
    await recorder.end(first, committed=False)
    await recorder.note("add", first, first.add(recorder.topic, 1))
    await recorder.note("group", first, first.add_group("known"))
    for version in (4, 5):
        offset = first.commit_offset("known", recorder.topic, 0, 1, version=version)
        await recorder.note(f"offset v{version}", first, offset)
    await recorder.note("own", first, first.init(own=True))


async def old_producer_bumps_after_a_successor_began(recorder: Recorder) -> None:
    """While a transaction is open the coordinator compares the producer id alone, and aborts it."""
    first, second = await recorder.producer(), await recorder.producer()
    await first.init()
    await recorder.begin(first, 0)
    await recorder.write(first, b"aborted")
    await recorder.note("successor", second, second.init())
    await recorder.begin(second, 0)
    await recorder.write(second, b"aborted too")
    await recorder.end(first, committed=False)
    await recorder.note("own", first, first.init(own=True))
    await recorder.write(second, b"no")
    await recorder.end(second)
    await recorder.end(second, committed=False)


async def bump_of_the_own_epoch(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    await recorder.note("own", raw, raw.init(own=True))
    for behind in (1, 0, 1, 2):
        raw.epoch -= behind
        await recorder.note(f"own, {behind} behind", raw, raw.init(own=True))
    raw.producer_id += 1
    await recorder.note("another's", raw, raw.init(own=True))


async def bump_of_the_own_epoch_in_a_transaction(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    await recorder.begin(raw, 0)
    await recorder.write(raw, b"aborted")
    await recorder.note("own", raw, raw.init(own=True))


async def wrong_producer_id(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    raw.producer_id += 1
    await refused_everywhere(recorder, raw)


async def future_epoch(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    raw.epoch += 1
    await refused_everywhere(recorder, raw)


async def unused_transactional_id(recorder: Recorder) -> None:
    raw = await recorder.producer()
    raw.producer_id, raw.epoch = 1, 0
    await refused_everywhere(recorder, raw)


async def refused_everywhere(recorder: Recorder, raw: RawProducer) -> None:
    await recorder.note("add", raw, raw.add(recorder.topic, 0))
    await recorder.note("group", raw, raw.add_group("known"))
    for version in (11, 12):
        await recorder.note(
            f"produce v{version}", raw, raw.produce(recorder.topic, 0, b"no", version=version)
        )
    for version in (4, 5):
        await recorder.note(f"abort v{version}", raw, raw.end(committed=False, version=version))
        offset = raw.commit_offset("known", recorder.topic, 0, 1, version=version)
        await recorder.note(f"offset v{version}", raw, offset)


async def missing_partition(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    for version in (3, 9, 10, 11):
        await recorder.note(
            f"produce v{version}", raw, raw.produce(recorder.topic, 0, b"no", version=version)
        )
    await recorder.note("no such partition", raw, raw.add(recorder.topic, 0, 9))
    await recorder.note("no such topic", raw, raw.add("nothing", 0))
    await recorder.note("add", raw, raw.add(recorder.topic, 0))
    await recorder.note("produce v11", raw, raw.produce(recorder.topic, 0, b"value", version=11))
    await recorder.note("another", raw, raw.produce(recorder.topic, 1, b"no", version=11))
    await recorder.note("nameless", raw, raw.produce(recorder.topic, 0, b"no", named=False))
    await recorder.end(raw)


async def batches_outside_the_transaction(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    await recorder.note("outside", raw, raw.produce(recorder.topic, 0, b"value", transactional=False))
    await recorder.note(
        "nameless", raw, raw.produce(recorder.topic, 0, b"value", transactional=False, named=False)
    )
    await recorder.begin(raw, 0)
    await recorder.write(raw)
    await recorder.note("inside", raw, raw.produce(recorder.topic, 0, b"no", transactional=False))
    await recorder.end(raw)


async def wrong_sequences(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    await raw.add(recorder.topic, 0, 1)
    for version, sequence in ((12, 5), (11, 5), (11, 0), (11, 1), (11, 1), (11, 3)):
        batch = raw.produce(recorder.topic, 0, b"%d" % sequence, sequence=sequence, version=version)
        await recorder.note(f"sequence {sequence} v{version}", raw, batch)
    await recorder.note("any sequence", raw, raw.produce(recorder.topic, 1, b"5", sequence=5, version=11))
    await recorder.end(raw)
    await recorder.begin(raw, 0)
    for sequence in (7, 2, 1, 0, 1, 2):
        batch = raw.produce(recorder.topic, 0, b"%d" % sequence, sequence=sequence)
        await recorder.note(f"then sequence {sequence}", raw, batch)
    await recorder.end(raw)


async def refused_batch_adds_its_partition(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    await recorder.note("from 5", raw, raw.produce(recorder.topic, 0, b"no", sequence=5, version=12))
    await recorder.end(raw)


async def zombie_writes_after_the_end(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    await recorder.begin(raw, 0)
    await recorder.write(raw)
    await recorder.end(raw)
    successor = await recorder.producer()
    await recorder.note("init", successor, successor.init())  # waits for the markers
    for version in (11, 12):
        for partition in (0, 1):
            batch = raw.produce(recorder.topic, partition, b"no", sequence=1, version=version)
            await recorder.note(f"produce {partition} v{version}", raw, batch)


async def committed_offsets(recorder: Recorder) -> None:
    raw = await recorder.producer()
    await raw.init()
    for version in (0, 2, 3, 4):
        offset = raw.commit_offset("known", recorder.topic, 0, 1, version=version)
        await recorder.note(f"not added v{version}", raw, offset)
    await recorder.note("group", raw, raw.add_group(f"new-{recorder.transactional_id}"))
    for member, generation in (("m", 3), ("", 3), ("m", -1), ("", 3), ("m", 3), ("", -1)):
        offset = raw.commit_offset(
            f"new-{recorder.transactional_id}", recorder.topic, 0, 1, member=member, generation=generation
        )
        await recorder.note(f"member {member!r} generation {generation}", raw, offset)
    await recorder.note(
        "no partition", raw, raw.commit_offset(f"new-{recorder.transactional_id}", recorder.topic, 9, 1)
    )
    await recorder.end(raw)


async def timeouts_out_of_range(recorder: Recorder) -> None:
    raw = await recorder.producer()
    for timeout_ms in (0, -1, 900_001, 900_000):
        await recorder.note(f"timeout {timeout_ms}", raw, raw.init(timeout_ms=timeout_ms))


async def overdue(recorder: Recorder) -> RawProducer:
    raw = await recorder.producer()
    await raw.init(timeout_ms=TIMEOUT_MS)
    await recorder.begin(raw, 0)
    await recorder.write(raw, b"aborted")
    await asyncio.sleep(OVERDUE_S)
    return raw


async def return_after_the_timeout(recorder: Recorder) -> None:
    raw = await overdue(recorder)
    await recorder.write(raw, b"no")
    await recorder.note("add", raw, raw.add(recorder.topic, 0))
    await recorder.end(raw)
    await recorder.end(raw, committed=False)
    await recorder.begin(raw, 0)
    await recorder.write(raw, b"value")
    await recorder.end(raw)


async def initialisation_after_the_timeout(recorder: Recorder) -> None:
    raw = await overdue(recorder)
    await recorder.note("own", raw, raw.init(own=True))


SEQUENCES: Final[Sequence[RequestSequence]] = (
    commits_and_aborts,
    repeated_ends,
    end_without_transaction,
    end_in_the_other_version,
    successor_takes_over,
    old_producer_bumps_after_a_successor_began,
    bump_of_the_own_epoch,
    bump_of_the_own_epoch_in_a_transaction,
    wrong_producer_id,
    future_epoch,
    unused_transactional_id,
    missing_partition,
    batches_outside_the_transaction,
    wrong_sequences,
    refused_batch_adds_its_partition,
    zombie_writes_after_the_end,
    committed_offsets,
    timeouts_out_of_range,
    return_after_the_timeout,
    initialisation_after_the_timeout,
)
