"""An exception in any step of completion: every call has its outcome, and the producer closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from aioproducer import Producer, ProducerError
from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.admission import MemoryBudget
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.bulk import CallWaiters
from aioproducer._core.batching.completion import BatchCompletion, OutcomeObserver
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.schedule import Deadlines, Schedule
from aioproducer._core.batching.waiters import AwaitingWaiters, Delivered, FutureWaiters
from aioproducer._core.idempotence import PartitionSequences, Persistence
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.sender.loop import Sender
from aioproducer._core.sender.obstacles import Obstacles
from aioproducer._core.sender.requests import ResponseHandler
from aioproducer.errors import (
    BrokerError,
    InvalidRecord,
    MessageTooLarge,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
)
from aioproducer.testing import Cluster
from aioproducer.testing.virtual_time import VirtualTimeLoop
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, producing, scenario

PARTITIONS = 4


def refuses(error: type[BrokerError]) -> Callable[[Cluster], object]:
    def begin(cluster: Cluster) -> object:
        return cluster.on("produce", topic=TOPIC, times=1).answer(error)

    return begin


def hangs_up(cluster: Cluster) -> object:
    return cluster.on("produce", topic=TOPIC, times=1).close(before_append=False)


def is_silent(cluster: Cluster) -> object:
    return cluster.on("produce", topic=TOPIC, times=None).drop()


def is_well(_: Cluster) -> None:
    return None


COMPLETES = [
    (ResponseHandler, "take"),
    (BatchCompletion, "complete"),
    (PartitionSequences, "acknowledge"),
    (Batch, "acknowledge"),
    (Batch, "resolve"),
    (OutcomeObserver, "delivered"),
    (Accumulator, "release"),
    (MemoryBudget, "give_back"),
    (Deadlines, "discard"),
    (FutureWaiters, "resolve"),
    (AwaitingWaiters, "resolve"),
    (CallWaiters, "resolve"),
    (Delivered, "metadata"),
    (Delivered, "slice"),
    (Persistence, "answered"),
    (Sender, "_received"),
    (Sender, "_run_in_callback"),
    (Sender, "_run_once"),
    (Sender, "_serve"),
    (Sender, "_write"),
    (Sender, "_count"),
    (Schedule, "drain"),
    (Schedule, "offer"),
    (Schedule, "collect"),
    (PartitionQueue, "take"),
]
FAILS = [
    (BatchCompletion, "fail"),
    (PartitionQueue, "remove"),
    (PartitionQueue, "request_epoch_bump"),
    (Batch, "fail"),
    (BatchCompletion, "_reject"),
    (OutcomeObserver, "failed"),
    (Accumulator, "release"),
    (BatchCompletion, "_offer_again"),
    (FutureWaiters, "fail"),
    (AwaitingWaiters, "fail"),
    (CallWaiters, "fail"),
]
RETRIES = [
    (BatchCompletion, "reenqueue"),
    (PartitionQueue, "remove"),
    (PartitionQueue, "retry"),
    (Batch, "retry"),
    (OutcomeObserver, "retried"),
    (Schedule, "back_off"),
    (ResponseHandler, "lost"),
    (MetadataUpdater, "request_refresh"),
]
SPLITS = [
    (BatchCompletion, "split"),
    (BatchCompletion, "_ranges"),
    (BatchCompletion, "_replace"),
    (Batch, "part"),
    (Batch, "split"),
    (Batch, "take_waiters"),
    (Accumulator, "hold"),
    (Accumulator, "release"),
    (OutcomeObserver, "split"),
    (PartitionQueue, "put_back"),
    (PartitionQueue, "retry"),
]
REJECTS = [
    (BatchCompletion, "reject_records"),
    (OutcomeObserver, "failed"),
    (Batch, "part"),
    (Batch, "take_waiters"),
    (BatchCompletion, "_replace"),
    (PartitionQueue, "put_back"),
    (PartitionQueue, "request_epoch_bump"),
]
EXPIRES = [
    (BatchCompletion, "expire"),
    (BatchCompletion, "fail_or_expire"),
    (BatchCompletion, "expire_in_flight"),
    (Batch, "expire"),
    (Accumulator, "resolved"),
    (BatchCompletion, "_reject"),
    (Deadlines, "take_due"),
    (Obstacles, "failure"),
]
TELLS = (FutureWaiters, AwaitingWaiters, CallWaiters)
WELL: list[dict[str, Any]] = [
    {},
    {"acks": 0},
    {"acks": 1, "enable_idempotence": False},
    {"compression_type": "gzip"},
]
STEPS: list[tuple[dict[str, Any], Callable[[Cluster], object], type[Any], str]] = [
    ({}, begin, kind, name)
    for begin, steps in (
        (refuses(TopicAuthorizationFailed), FAILS),
        (refuses(NotLeaderOrFollower), RETRIES),
        (hangs_up, RETRIES),
        (refuses(MessageTooLarge), SPLITS),
        (refuses(InvalidRecord), REJECTS),
        (is_silent, EXPIRES),
    )
    for kind, name in steps
] + [(options, is_well, kind, name) for options in WELL for kind, name in COMPLETES]


class Injection:
    """Raises *error* at the next *times* calls of a method: before the method runs, or after it."""

    def __init__(self, error: BaseException, *, times: float = 1, after: bool = False) -> None:
        self.error, self.times, self.after = error, times, after
        self.raised = 0
        self.armed = False

    def into(self, patch: pytest.MonkeyPatch, kind: type[Any], name: str) -> None:
        method = getattr(kind, name)

        def injected(*arguments: Any, **named: Any) -> Any:
            raises = self.armed and self.raised < self.times
            if raises and not self.after:
                self.raised += 1
                raise self.error
            result = method(*arguments, **named)
            if raises:
                self.raised += 1
                raise self.error
            return result

        patch.setattr(kind, name, injected)


class Ends:
    """Interceptor that counts outcomes."""

    def __init__(self) -> None:
        self.count = 0

    def on_acknowledgement(self, *_: object) -> None:
        self.count += 1


def calls_of(producer: Producer) -> list[asyncio.Future[Any]]:
    """Begin calls of each kind; each has to end."""
    works = (
        *(producer.send(TOPIC, b"v", partition=each) for each in range(PARTITIONS)),
        producer.send_many(TOPIC, [b"v"] * 8),
        producer.send_many(TOPIC, [b"v"] * 8, timeout_s=0.5),
        producer.send(TOPIC, b"v", timeout_s=0.4, partition=0),
        producer.flush(),
    )
    return [
        *(producer.send_nowait(TOPIC, b"v", partition=each % PARTITIONS) for each in range(8)),
        *map(asyncio.ensure_future, works),
    ]


async def have_outcomes(injection: Injection, calls: list[asyncio.Future[Any]]) -> None:
    await asyncio.sleep(0)
    injection.armed = True
    done, pending = await asyncio.wait(calls, timeout=5)
    assert not pending
    for each in done:
        error = each.exception()  # an append raises the bug itself
        assert error is None or isinstance(error, ProducerError) or error is injection.error
    injection.armed = False


async def closes(producer: Producer, injection: Injection) -> None:
    try:
        await asyncio.wait_for(producer.send(TOPIC, b"next"), 5)
    except ProducerError:
        assert injection.raised
    await asyncio.wait_for(producer.close(), 10)
    assert len(producer) == 0


SHORT: dict[str, Any] = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 1_000, "linger_ms": 10}


@for_each("after", [False, True])
@for_each("times", [1, 1_000_000])
@pytest.mark.parametrize(
    ("options", "begin", "kind", "name"), STEPS, ids=lambda each: getattr(each, "__name__", "")
)
@scenario
async def test_calls_have_outcomes_when_a_step_raises(
    options: dict[str, Any],
    begin: Callable[[Cluster], object],
    kind: type[Any],
    name: str,
    times: int,
    after: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if times > 1 and kind in TELLS:
        return  # a call has no other source of its outcome
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    injection, ends = Injection(LookupError("a bug"), times=times, after=after), Ends()
    with monkeypatch.context() as patch:
        injection.into(patch, kind, name)
        async with producing(partitions=PARTITIONS, interceptors=[ends], **SHORT, **options) as (
            producer,
            cluster,
        ):
            begin(cluster)
            before = ends.count
            await have_outcomes(injection, calls_of(producer))
            assert ends.count - before >= 25 or kind is OutcomeObserver
            await closes(producer, injection)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(BatchCompletion, "complete"), (Batch, "resolve"), (Accumulator, "release"), (Sender, "_run_once")],
)
@scenario
async def test_transaction_fails_when_a_step_raises(
    kind: type[Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    injection = Injection(LookupError("a bug"))
    injection.into(monkeypatch, kind, name)
    options: dict[str, Any] = {"transactional_id": "t", "acquainted": False}
    async with producing(partitions=PARTITIONS, **SHORT, **options) as (producer, _):
        await producer.begin_transaction()
        await producer.send(TOPIC, b"known")
        await have_outcomes(injection, calls_of(producer))
        with pytest.raises(ProducerError):
            await asyncio.wait_for(producer.commit_transaction(), 10)
        await asyncio.wait_for(producer.close(), 10)


@for_each("interrupt", [KeyboardInterrupt, SystemExit])
@for_each(("kind", "name"), COMPLETES)
def test_calls_have_outcomes_when_a_step_is_interrupted(
    kind: type[Any], name: str, interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    injection = Injection(interrupt("Ctrl-C"))

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with producing(partitions=PARTITIONS, **SHORT) as (producer, _):
            await have_outcomes(injection, calls_of(producer))
            await closes(producer, injection)

    loop = VirtualTimeLoop()
    task = loop.create_task(main())
    try:
        with monkeypatch.context() as patch:
            injection.into(patch, kind, name)
            while not task.done():
                with suppress(interrupt):
                    loop.run_until_complete(task)
            task.result()
    finally:
        loop.close()
