"""Batches that may be in the log, behind and before a batch that failed without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import pytest

from aioproducer import ConnectionFailed, Producer, ProducerError, RecordMetadata
from aioproducer._core.batching.batch import Batch
from aioproducer._core.idempotence import REFUSALS_AS_PROOF
from aioproducer._core.net.connection import Connection
from aioproducer._core.sender.requests import ResponseHandler
from aioproducer.errors import (
    BrokerError,
    CommitFailed,
    InvalidProducerEpoch,
    InvalidRecord,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailed,
    UnknownProducerId,
)
from aioproducer.testing import Cluster, producer_state
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, now, producing, scenario, settle, values

DENIALS = pytest.mark.parametrize(
    "denial", [OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerEpoch]
)
PROMPT_S = 10.0
"""Five batches in doubt, each sent again after 1 s, have their outcomes by then; the delivery timeout is 120 s."""


@asynccontextmanager
async def unanswered(
    count: int, *, kept: int = 1, records: int = 1, **options: Any
) -> AsyncIterator[tuple[Producer, Cluster, list[asyncio.Future[RecordMetadata]]]]:
    """Let *count* batches of *records* reach partition 0, behind *kept* records, and lose the answers."""
    batches: list[Batch] = []
    all_lost = asyncio.Event()

    def lose(handler: ResponseHandler, connection: Connection, lost: list[Batch], *_: object) -> None:
        batches.extend(lost)
        if len(batches) == count:
            handler.lost(connection, batches, ConnectionFailed("the answers got lost", written=True))
            all_lost.set()

    pause: dict[str, Any] = {"retry_backoff_ms": 1000, "retry_backoff_max_ms": 1000}
    transactional = "transactional_id" in options
    async with producing(linger_ms=0, partitions=2, acquainted=not transactional, **pause, **options) as (
        producer,
        cluster,
    ):
        if transactional:
            await producer.begin_transaction()
        for number in range(kept):
            await producer.send(TOPIC, b"kept %d" % number, partition=0)
        sending: list[asyncio.Future[RecordMetadata]] = []
        with mock.patch.object(ResponseHandler, "take", lose):
            for number in range(count):
                sending += [
                    producer.send_nowait(TOPIC, b"%d" % (records * number + each), partition=0)
                    for each in range(records)
                ]
                await settle()
            await all_lost.wait()
        yield producer, cluster, sending


async def restart(cluster: Cluster) -> None:
    """Let the leader remember only the last batch, as if restored from its snapshot."""
    await cluster.stop_broker(1)
    await cluster.start_broker(1)


async def outcomes(sending: Sequence[asyncio.Future[RecordMetadata]]) -> list[RecordMetadata | ProducerError]:
    """Return the outcomes of *sending*, which arrive before the delivery timeout."""
    began_at = now()
    results = await asyncio.gather(*sending, return_exceptions=True)
    assert now() - began_at < PROMPT_S
    assert all(isinstance(each, RecordMetadata | ProducerError) for each in results)
    return [each for each in results if isinstance(each, RecordMetadata | ProducerError)]


class TestLaterBatchFailed:
    """The leader denies the uncertain batches, and a later batch fails while the leader is asked for it."""

    @DENIALS
    @pytest.mark.parametrize("count", [2, 3, 5])
    @scenario
    async def test_batches_fail_soon_and_nothing_is_stored_twice(
        self, monkeypatch: pytest.MonkeyPatch, denial: type[BrokerError], count: int
    ) -> None:
        monkeypatch.setattr(producer_state, "OutOfOrderSequenceNumber", denial)
        async with unanswered(count) as (producer, cluster, sending):
            await restart(cluster)
            cluster.on("produce", after=REFUSALS_AS_PROOF).answer(TopicAuthorizationFailed)
            results = await outcomes(sending)
            assert [type(each) for each in results] == [denial] * (count - 1) + [TopicAuthorizationFailed]
            assert all(isinstance(each, ProducerError) and each.possibly_persisted for each in results)
            await producer.send(TOPIC, b"last", partition=0)
            assert values(cluster) == [b"kept 0", *(b"%d" % number for number in range(count)), b"last"]

    @for_each("refusal", [TopicAuthorizationFailed, MessageTooLarge, InvalidRecord])
    @for_each("failed", [1, 2, 3, 4])
    @scenario
    async def test_batches_behind_a_failed_batch_are_stored(
        self, failed: int, refusal: type[BrokerError]
    ) -> None:
        async with unanswered(5, kept=2) as (producer, cluster, sending):
            cluster.lose_end(TOPIC, 0, 6)
            later = [producer.send_nowait(TOPIC, b"later %d" % number, partition=0) for number in range(9)]
            cluster.on("produce", after=REFUSALS_AS_PROOF + 4 - failed).answer(refusal)
            results = await outcomes([*sending, *later])
            for number, each in enumerate(results):
                stored = number > failed
                assert isinstance(each, RecordMetadata) is stored
                assert stored or (isinstance(each, ProducerError) and each.possibly_persisted)
            assert values(cluster) == [
                b"kept 0",
                *(b"%d" % number for number in range(failed + 1, 5)),
                *(b"later %d" % number for number in range(9)),
            ]

    @scenario
    async def test_failed_batches_delay_no_longer_than_one(self) -> None:
        async with unanswered(5, kept=2) as (producer, cluster, sending):
            cluster.lose_end(TOPIC, 0, 6)
            cluster.on("produce", after=REFUSALS_AS_PROOF, times=2).answer(TopicAuthorizationFailed)
            results = await outcomes(sending)
            assert [type(each) for each in results] == (
                [OutOfOrderSequenceNumber] * 3 + [TopicAuthorizationFailed] * 2
            )
            await producer.send(TOPIC, b"last", partition=0)
            assert values(cluster) == [b"kept 0", b"last"]

    @scenario
    async def test_uncertain_batch_delays_no_other_partition(self) -> None:
        async with unanswered(3, kept=2) as (producer, cluster, sending):
            cluster.lose_end(TOPIC, 0, 4)
            cluster.on("produce", partition=0, after=REFUSALS_AS_PROOF).answer(TopicAuthorizationFailed)
            others = []
            for number in range(50):
                began_at = now()
                await producer.send(TOPIC, b"%d" % number, partition=1)
                others.append(now() - began_at)
                await asyncio.sleep(0.02)
            assert max(others) < 0.3
            await outcomes(sending)
            assert len(values(cluster, 1)) == 50


class TestLaterBatchWasSplit:
    """A leader that has a batch recognises none of its parts, so it cannot be asked for the batch."""

    @DENIALS
    @pytest.mark.parametrize("count", [1, 2, 3])
    @scenario
    async def test_split_batch_is_not_stored_twice(
        self, monkeypatch: pytest.MonkeyPatch, denial: type[BrokerError], count: int
    ) -> None:
        monkeypatch.setattr(producer_state, "OutOfOrderSequenceNumber", denial)
        async with unanswered(count, records=2) as (producer, cluster, sending):
            await restart(cluster)
            cluster.on("produce", after=REFUSALS_AS_PROOF if count > 1 else 0).answer(MessageTooLarge)
            for each in await outcomes(sending):
                assert isinstance(each, denial)
                assert each.possibly_persisted
            await producer.send(TOPIC, b"last", partition=0)
            assert values(cluster) == [b"kept 0", *(b"%d" % number for number in range(2 * count)), b"last"]


@scenario
async def test_transaction_fails_soon_and_next_one_commits() -> None:
    async with unanswered(3, transactional_id="t") as (producer, cluster, sending):
        await restart(cluster)
        cluster.on("produce", after=REFUSALS_AS_PROOF).answer(TopicAuthorizationFailed)
        await outcomes(sending)
        with pytest.raises(CommitFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"last", partition=0)
        assert values(cluster) == [b"kept 0", b"0", b"1", b"2", b"last"]
