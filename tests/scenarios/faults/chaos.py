"""Random simultaneous faults from a seed, beyond the combinations of the table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias

from aioproducer._core.batching.batch import Batch
from aioproducer._core.idempotence import REFUSALS_AS_PROOF
from aioproducer._core.sender.requests import Unencodable
from aioproducer.errors import (
    BufferFull,
    DeliveryTimeout,
    InvalidRecord,
    MessageTooLarge,
    MetadataTimeout,
    MetadataUnavailable,
    ProducerError,
    RecordPurged,
    broker_error,
)
from aioproducer.testing import Rule
from tests.scenarios.faults import hostile
from tests.scenarios.faults.faults import may_move, move, topic_recreated
from tests.scenarios.faults.load import TOPIC
from tests.scenarios.faults.meddler import Meddler
from tests.scenarios.faults.shortage import no_threads, threads_are_short
from tests.scenarios.faults.world import BROKERS, MODES, PARTITIONS, Mode, Scenario, World

Codes: TypeAlias = tuple[int, ...]

RETRIABLE: Final[Codes] = (2, 3, 5, 6, 7, 19, 20, 56, 74)
AFTER_APPEND: Final[Codes] = (3, 5, 6, 7, 20, 56, 74)
TERMINAL: Final[Codes] = (-1, 29, 31, 42, 44, 999)
TERMINAL_AFTER_APPEND: Final[Codes] = (-1, 42, 44, 999)
ABOUT_THE_SEQUENCE: Final[Codes] = (45, 47)
THROTTLES_MS: Final = (1_500, 2_500)
MANGLED: Final = (
    hostile.cut,
    hostile.stuck,
    hostile.twice,
    hostile.byte_by_byte,
    hostile.other_correlation_id,
    hostile.of_length(0x7FFFFFFF),
    hostile.of_length(0),
    hostile.followed,
    hostile.too_long,
    hostile.garbage,
)

MAY_FAIL: Final[tuple[type[ProducerError], ...]] = (
    DeliveryTimeout,
    InvalidRecord,
    MessageTooLarge,
    MetadataTimeout,
    BufferFull,
    MetadataUnavailable,
    RecordPurged,
    *(broker_error(code) for code in (*TERMINAL, *ABOUT_THE_SEQUENCE)),
)


def chaos(seed: int, *, seconds: float = 15.0) -> tuple[Scenario, Mode]:
    """Return the world of *seed*."""
    chance = Random(seed)
    meddler = (
        Meddler(Random(seed)) if seed % 2 else None
    )  # records of producers without user code go a shorter way
    mode = chance.choice(MODES)
    request_timeout_ms = chance.choice((200, 1000))
    burst, pause_s = chance.choice(((1, 0.01), (2, 0.02), (8, 0.1)))
    return (
        Scenario(
            name=f"seed-{seed}",
            fault=lambda world: Chaos(world, chance, meddler=meddler).run(seconds),
            may_fail=MAY_FAIL,
            ordered=mode.acks != 0,  # nobody waits for anything then
            recovery_s=None,
            most_metadata_requests=int(60 * seconds),
            burst=burst,
            pause_s=pause_s,
            value_bytes=chance.choice((20, 20, 20, 4000)),
            latency_s=chance.choice((0.0, 0.002, 0.02)),
            options={
                "request_timeout_ms": request_timeout_ms,
                "delivery_timeout_ms": request_timeout_ms + chance.choice((300, 1000, 6000)),
                "batch_size": chance.choice((16_384, 200_000)),  # the large ones are compressed in a thread
                "linger_ms": chance.choice((0, 5, 50)),
                "max_in_flight_requests_per_connection": chance.choice((1, 2, 5)),
                "compression_type": chance.choice(("none", "none", "lz4")),
                "interceptors": [] if meddler is None else [meddler],
            },
        ),
        mode,
    )


@dataclass(slots=True)
class Chaos:
    """Lets things go wrong in a world, several at a time."""

    world: World
    chance: Random
    ill: set[int] = field(default_factory=set)
    """The nodes that are away or frozen."""
    denials: int = 0
    """How many batches were refused for their sequence."""
    rules: list[Rule] = field(default_factory=list)
    meddler: Meddler | None = None

    async def run(self, seconds: float) -> None:
        """Begin something every now and then for *seconds*; return when everything is well again."""
        loop = asyncio.get_running_loop()
        if self.world.producer.config.compression_type != "none":
            self._compress_elsewhere()
        end = loop.time() + seconds
        kinds = [
            *[self.retriable] * 4,
            *[self.trouble] * 4,
            *[self.moved_leader] * 3,
            *[self.reset] * 2,
            *[self.ill_broker] * 2,
            self.moved_broker,
            self.no_threads,
            *[self.user_code] * 2,
        ]
        # A broker reads what is left of a closed connection at the end of a throttle, which may be after the records were
        # sent again, under other sequences. So it is either long throttles, or answers that make this side close.
        kinds += [self.long_throttle] * 2 if self.chance.random() < 0.3 else [self.mangled] * 3
        if self.chance.random() < 0.3:
            # A log that is empty again takes any sequence first: also that of a batch of uncertain fate which is
            # resent while batches before it, refused, wait for a new one. So it is either this or that.
            kinds.append(self.recreated_topic)
        else:
            kinds += [
                *[self.refused] * 2,
                self.refused_for_its_sequence,
                self.refused_records,
                self.limited_batches,
            ]
        async with asyncio.TaskGroup() as group:
            while loop.time() < end:
                await asyncio.sleep(self.chance.expovariate(4))
                kind: Callable[[], Coroutine[Any, Any, None]] = self.chance.choice(kinds)
                _ = group.create_task(kind())
        for rule in self.rules:
            rule.remove()
        await asyncio.sleep(max(THROTTLES_MS) / 1_000)  # the last one may have begun just now

    async def retriable(self) -> None:
        """Answer some batches with an error that passes."""
        if self.chance.random() < 0.5:
            self._rule().answer(self.chance.choice(RETRIABLE))
        else:
            self._rule().answer(self.chance.choice(AFTER_APPEND), before_append=False)

    async def refused(self) -> None:
        """Answer some batches with an error that is final."""
        if self.chance.random() < 0.5:
            self._rule().answer(self.chance.choice(TERMINAL))
        else:
            self._rule().answer(self.chance.choice(TERMINAL_AFTER_APPEND), before_append=False)

    async def refused_for_its_sequence(self) -> None:
        """Refuse the sequence of a batch that may be stored, fewer times than the producer accepts as proof."""
        if self.denials < REFUSALS_AS_PROOF - 1:
            self.denials += 1
            self._rule(times=1).answer(self.chance.choice(ABOUT_THE_SEQUENCE))

    async def refused_records(self) -> None:
        """Refuse some batches for one of their records."""
        self._rule().answer(InvalidRecord, record_errors={0: "bad"})

    async def trouble(self) -> None:
        """Delay an answer, drop it, or close the connection."""
        before_append = self.chance.random() < 0.5
        rule = self._rule(self.chance.choice(("produce", "produce", "metadata", None)))
        match self.chance.randrange(5):
            case 0:
                rule.delay(self.chance.uniform(0, 0.3), before_append=before_append)
            case 1:
                rule.delay(self.chance.uniform(0, 2), before_append=before_append)
            case 2:
                rule.drop(before_append=before_append)
            case 3:
                rule.close(before_append=before_append)
            case _:
                rule.throttle(self.chance.randrange(500))

    async def long_throttle(self) -> None:
        """Throttle some requests for longer than the request timeout, or even the delivery timeout."""
        rule = self._rule(self.chance.choice(("produce", "produce", "metadata", "init_producer_id", None)))
        rule.throttle(self.chance.choice(THROTTLES_MS))

    async def mangled(self) -> None:
        """Make a mess of some answers."""
        rule = self._rule(self.chance.choice(("produce", "produce", "produce", "metadata", "api_versions")))
        rule.rewrite(self.chance.choice(MANGLED))

    async def moved_leader(self) -> None:
        """Let another node lead a partition."""
        if TOPIC in self.world.cluster._state.topics:
            move(self.world, self.chance.randrange(PARTITIONS), self.chance.choice((1, 2)))

    async def reset(self) -> None:
        """Reset the connections to a node, or to all."""
        for node in self.chance.choice(((1,), (2,), (3,), (1, 2, 3))):
            self.world.cluster.disconnect(node)

    async def ill_broker(self) -> None:
        """Stop or freeze a node for a while; not all of them at once."""
        well = sorted(set(range(1, BROKERS + 1)) - self.ill)
        if len(well) < 2:
            return
        node = self.chance.choice(well)
        self.ill.add(node)
        s = self.chance.choice((0.05, 0.5, 3.0))
        cluster = self.world.cluster
        if self.chance.random() < 0.5:
            cluster.freeze_broker(node)
            await asyncio.sleep(s)
            cluster.thaw_broker(node)
        else:
            await cluster.stop_broker(node, failover=self.chance.random() < 0.5)
            await asyncio.sleep(s)
            await cluster.start_broker(node)
        self.ill.discard(node)

    async def moved_broker(self) -> None:
        """Give a node another address, or exchange the addresses of two nodes."""
        well = sorted(set(range(1, BROKERS + 1)) - self.ill)
        if len(well) >= 2:
            one, other = self.chance.sample(well, 2)
            if self.chance.random() < 0.5 and may_move(self.world.cluster, self.world.producer, one):
                await self.world.cluster.move_broker(one)
            else:
                await self.world.cluster.exchange_addresses(one, other)

    async def limited_batches(self) -> None:
        """Take only small batches for a while."""
        self.world.cluster.message_max_bytes = self.chance.choice((80, 100, 200))
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        self.world.cluster.message_max_bytes = 1_000_000

    async def recreated_topic(self) -> None:
        """Delete and recreate the topic."""
        if TOPIC in self.world.cluster._state.topics:
            await topic_recreated(self.world)

    async def user_code(self) -> None:
        """Let an interceptor and a log handler call the producer, and raise, for a while."""
        load, producer = self.world.load, self.world.producer
        if self.meddler is None or self.meddler.is_active:
            return
        send = partial(load.send_nowait, self.chance.randrange(PARTITIONS))
        with self.meddler.active(producer, send, send, producer.purge):
            await asyncio.sleep(self.chance.choice((0.05, 0.5, 3.0)))

    async def no_threads(self) -> None:
        """Let no thread start for a while."""
        await no_threads(self.chance.choice((0.05, 0.5, 3.0)))

    def _compress_elsewhere(self) -> None:
        """Compress most requests in a thread, whatever their size; the thread takes virtual time here."""
        engine = self.world.producer._engine
        assert engine is not None
        encoder = engine._sender._encoder
        encode_off_loop = encoder.encode_off_loop

        async def after_a_while(batches: Sequence[Batch]) -> Unencodable:
            if threads_are_short():
                return await encode_off_loop(batches)
            await asyncio.sleep(self.chance.choice((0.0, 0.001, 0.01, 0.03)))
            return encoder.encode_all(batches)

        def mostly(batches: Sequence[Batch]) -> bool:
            return self.chance.random() < 0.8

        encoder.leaves_loop = mostly  # type: ignore[method-assign]
        encoder.encode_off_loop = after_a_while  # type: ignore[method-assign]

    def _rule(self, request: str | None = "produce", *, times: int | None = None) -> Rule:
        rule = self.world.cluster.on(request, times=times or self.chance.randint(1, 4))
        self.rules.append(rule)
        return rule
