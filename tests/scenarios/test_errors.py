"""Records refused by brokers: retried, split or failed, and no other record is affected."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

import aioproducer
from aioproducer import (
    BrokerError,
    MessageTooLarge,
    Producer,
    ProducerError,
    RecordMetadata,
    RecordTooLarge,
    TopicAuthorizationFailed,
    errors,
)
from aioproducer.errors import (
    ClusterAuthorizationFailed,
    CorruptMessage,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopicException,
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    UnknownProducerId,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, producing, scenario, settle, values

RETRIED = [
    CorruptMessage,
    UnknownTopicOrPartition,
    NotLeaderOrFollower,
    RequestTimedOut,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    KafkaStorageError,
]
SELF_HEALED = [OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerEpoch]
FINAL = [TopicAuthorizationFailed, InvalidTopicException, ClusterAuthorizationFailed, UnknownServerError]


async def send_all(producer: Producer, count: int) -> list[asyncio.Future[RecordMetadata]]:
    """Send *count* records, each in its own request if possible."""
    futures = []
    for number in range(count):
        futures.append(producer.send_nowait(TOPIC, b"%d" % number))
        await settle()
    await producer.flush()
    return futures


class TestRetried:
    @for_each("times", [1, 3])
    @for_each("error", [*RETRIED, *SELF_HEALED])
    @scenario
    async def test_retriable_error_is_invisible_to_the_caller(
        self, error: type[BrokerError], times: int
    ) -> None:
        async with producing(linger_ms=0) as (producer, cluster):
            fault = cluster.on("produce", topic=TOPIC, times=times).answer(error)
            sent = [each.result() for each in await send_all(producer, 6)]
            assert fault.hits == times
            assert [each.offset for each in sent] == list(range(6))
            assert values(cluster) == [b"%d" % number for number in range(6)]

    @pytest.mark.parametrize("error", [RequestTimedOut, NotEnoughReplicasAfterAppend, NotLeaderOrFollower])
    @scenario
    async def test_batch_appended_despite_an_error_is_not_doubled(self, error: type[BrokerError]) -> None:
        async with producing(linger_ms=0) as (producer, cluster):
            cluster.on("produce", topic=TOPIC, times=2).answer(error, before_append=False)
            sent = [each.result() for each in await send_all(producer, 4)]
            assert [each.offset for each in sent] == [0, 1, 2, 3]
            assert values(cluster) == [b"0", b"1", b"2", b"3"]

    @scenario
    async def test_duplicate_is_delivered_at_an_unknown_offset(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(DuplicateSequenceNumber, before_append=False)
            result = await producer.send_many(TOPIC, [b"a", b"b"])
            assert [result.offset(0), result.offset(1)] == [-1, -1]

    @scenario
    async def test_retries_may_be_limited(self) -> None:
        async with producing(retries=2, linger_ms=0) as (producer, cluster):
            fault = cluster.on("produce", topic=TOPIC, times=None).answer(NotEnoughReplicas)
            with pytest.raises(NotEnoughReplicas, match="3 attempts") as raised:
                await producer.send(TOPIC, b"v")
            assert fault.hits == 3
            assert raised.value.retriable
            assert not raised.value.possibly_persisted
            fault.remove()
            await producer.send(TOPIC, b"next")
            assert values(cluster) == [b"next"]


class TestFinal:
    @pytest.mark.parametrize("error", FINAL)
    @scenario
    async def test_final_error_fails_only_its_batch(self, error: type[BrokerError]) -> None:
        async with producing(linger_ms=0) as (producer, cluster):
            await producer.send(TOPIC, b"first")
            cluster.on("produce", topic=TOPIC, after=2).answer(error)
            futures = await send_all(producer, 5)
            assert [type(each.exception()) for each in futures].count(error) == 1
            failed = futures[2].exception()
            assert isinstance(failed, error)
            assert failed.possibly_persisted is not error.definitely_refused
            assert not failed.retriable
            assert values(cluster) == [b"first", b"0", b"1", b"3", b"4"]

    @scenario
    async def test_unknown_error_code_is_final(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(4711)
            with pytest.raises(BrokerError) as raised:
                await producer.send(TOPIC, b"v")
            assert raised.value.code == 4711
            assert raised.value.possibly_persisted
            await producer.send(TOPIC, b"v")

    @scenario
    async def test_failed_records_have_own_errors_and_a_shared_cause(self) -> None:
        async with producing(linger_ms=100) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(TopicAuthorizationFailed)
            outcomes = await asyncio.gather(
                *(producer.send(TOPIC, b"v") for _ in range(3)), return_exceptions=True
            )
            assert all(isinstance(each, TopicAuthorizationFailed) for each in outcomes)
            assert len({id(each) for each in outcomes}) == 3
            causes = {id(each.__cause__) for each in outcomes if isinstance(each, BaseException)}
            assert len(causes) == 1
            assert isinstance(outcomes[0], BaseException)
            assert isinstance(outcomes[0].__cause__, TopicAuthorizationFailed)

    @scenario
    async def test_error_message_has_partition_attempts_and_cause(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(TopicAuthorizationFailed)
            with pytest.raises(TopicAuthorizationFailed) as raised:
                await producer.send(TOPIC, b"v")
            told = str(raised.value)
            assert told.startswith(f"orders-0 at {cluster.bootstrap_servers} (node 1), 1 attempt in ")
            assert told.endswith(": injected by cluster.on()")

    @scenario
    async def test_authorization_that_comes_back_is_used(self) -> None:
        async with producing(acquainted=False) as (producer, cluster):
            fault = cluster.on("init_producer_id", times=None).answer(ClusterAuthorizationFailed)
            with pytest.raises(ClusterAuthorizationFailed, match="producer id") as raised:
                await producer.send(TOPIC, b"v")
            assert not raised.value.possibly_persisted
            fault.remove()
            assert (await producer.send(TOPIC, b"v")).offset == 0


class TestTooLarge:
    @scenario
    async def test_oversized_batch_is_split_in_order(self) -> None:
        async with producing(linger_ms=100) as (producer, cluster):
            cluster.message_max_bytes = 500
            futures = [producer.send_nowait(TOPIC, b"%02d" % number * 50) for number in range(20)]
            assert [(await future).offset for future in futures] == list(range(20))
            assert values(cluster) == [b"%02d" % number * 50 for number in range(20)]
            assert max(len(batch.records) for batch in cluster.batches(TOPIC, 0)) <= 4

    @pytest.mark.parametrize("error", [RequestTimedOut, NotLeaderOrFollower])
    @scenario
    async def test_oversized_uncertain_batch_is_split_when_absent(self, error: type[BrokerError]) -> None:
        async with producing(linger_ms=100) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(error)
            cluster.message_max_bytes = 500
            sent = [b"%02d" % number * 50 for number in range(20)]
            result = await producer.send_many(TOPIC, sent)
            assert [result.offset(index) for index in range(20)] == list(range(20))
            assert values(cluster) == sent

    @scenario
    async def test_oversized_stored_batch_is_not_stored_again(self) -> None:
        """The broker checks the limit first and never saw the parts, so it cannot report which parts it has."""
        async with producing(linger_ms=100) as (producer, cluster):
            appended = cluster.on("produce", topic=TOPIC).close(before_append=False)
            futures = [producer.send_nowait(TOPIC, b"%02d" % number * 50) for number in range(20)]
            await appended.happened()
            cluster.message_max_bytes = 500
            sent = await producer.send(TOPIC, b"next", timeout_s=5)
            assert [future.done() for future in futures] == [True] * 20
            errors = [future.exception() for future in futures]
            assert {type(error) for error in errors} == {OutOfOrderSequenceNumber}
            assert all(isinstance(error, ProducerError) and error.possibly_persisted for error in errors)
            assert "probably stored the batch" in str(errors[0])
            assert sent.offset == 20
            assert values(cluster) == [*(b"%02d" % number * 50 for number in range(20)), b"next"]

    @scenario
    async def test_batches_after_a_split_are_smaller(self) -> None:
        async with producing(linger_ms=100) as (producer, cluster):
            cluster.message_max_bytes = 500
            await producer.send_many(TOPIC, [b"x" * 100] * 20)
            refusals = cluster.on("produce", topic=TOPIC, times=None)
            await producer.send_many(TOPIC, [b"x" * 100] * 12)
            assert refusals.hits == len(cluster.batches(TOPIC, 0)) - sum(
                1 for batch in cluster.batches(TOPIC, 0) if batch.base_offset < 20
            )

    @scenario
    async def test_single_oversized_record_fails_alone(self) -> None:
        async with producing(linger_ms=100) as (producer, cluster):
            cluster.message_max_bytes = 500
            futures = [producer.send_nowait(TOPIC, value) for value in (b"a", b"x" * 1_000, b"b")]
            await producer.flush()
            error = futures[1].exception()
            assert isinstance(error, MessageTooLarge)
            assert isinstance(error, RecordTooLarge)
            assert not error.possibly_persisted
            assert values(cluster) == [b"a", b"b"]

    @scenario
    async def test_record_over_max_request_size_is_refused_at_once(self) -> None:
        async with producing(max_request_size=1_000) as (producer, cluster):
            with pytest.raises(RecordTooLarge, match="max_request_size=1,000") as raised:
                await producer.send(TOPIC, b"x" * 1_000)
            assert not isinstance(raised.value, BrokerError)
            assert cluster.produce_requests(TOPIC, 0) == []


class TestNamedRecordsRefused:
    @scenario
    async def test_compacted_topic_refuses_only_keyless_records(self) -> None:
        async with producing(linger_ms=100) as (producer, cluster):
            cluster.create_topic("compacted", compacted=True)
            await producer.send("compacted", b"0", key=b"k")
            keys = [b"k", None, b"k", None, b"k"]
            futures = [
                producer.send_nowait("compacted", b"%d" % number, key) for number, key in enumerate(keys)
            ]
            await producer.flush()
            failed = [future.exception() for future in futures]
            assert [type(each) for each in failed] == [
                type(None),
                InvalidRecord,
                type(None),
                InvalidRecord,
                type(None),
            ]
            assert "compacted topics need keys" in str(failed[1])
            assert isinstance(failed[1], ProducerError)
            assert not failed[1].possibly_persisted
            assert values(cluster, topic="compacted") == [b"0", b"0", b"2", b"4"]

    @scenario
    async def test_record_too_far_in_the_future_fails_alone(self) -> None:
        async with producing(linger_ms=100) as (producer, cluster):
            good = producer.send_nowait(TOPIC, b"good")
            bad = producer.send_nowait(TOPIC, b"bad", timestamp_ms=2**50)
            await producer.flush()
            assert isinstance(bad.exception(), InvalidTimestamp)
            assert good.result().offset == 0
            assert values(cluster) == [b"good"]

    @scenario
    async def test_batch_of_refused_records_fails_alone(self) -> None:
        async with producing() as (producer, cluster):
            cluster.create_topic("compacted", compacted=True)
            with pytest.raises(InvalidRecord):
                await producer.send("compacted", b"no key")
            assert (await producer.send("compacted", b"v", key=b"k")).offset == 0


class TestClasses:
    def test_errors_are_exported_by_the_package(self) -> None:
        for name in errors.__all__:
            assert getattr(aioproducer, name) is getattr(errors, name)

    @for_each("name", [each for each in errors.__all__ if each != "broker_error"])
    def test_errors_have_retriable_and_possibly_persisted(self, name: str) -> None:
        kind: Any = getattr(errors, name)
        assert issubclass(kind, ProducerError)
        assert isinstance(kind.retriable, bool)
        more = {"result": None} if name == "SendManyError" else {}
        assert kind("told", **more).possibly_persisted is False
        assert kind("told", possibly_persisted=True, **more).possibly_persisted is True


def test_errors_can_be_pickled() -> None:
    error = TopicAuthorizationFailed("told", possibly_persisted=True)
    travelled = pickle.loads(pickle.dumps(error))
    assert isinstance(travelled, TopicAuthorizationFailed)
    assert travelled.possibly_persisted
    assert str(travelled) == "told"
