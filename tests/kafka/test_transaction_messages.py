"""Transaction requests at a real coordinator of both transaction versions, read back with another client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from aioproducer._core.protocol.admin import DescribeProducersRequest, ListTransactionsRequest, TopicRequest
from aioproducer._core.protocol.consumer import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from aioproducer._core.protocol.transactions import DescribeTransactionsRequest
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.raw_transactions import RawProducer
from tests.kafka.readback import read_with_librdkafka


@pytest.fixture(scope="module", params=[1, 2], ids=["TV1", "TV2"])
def versioned(
    brokers: Callable[[int], ApacheKafka], request: pytest.FixtureRequest
) -> tuple[int, ApacheKafka]:
    """A broker of each transaction version."""
    kafka = brokers(request.param)
    kafka.create_topic("orders", 2)
    return request.param, kafka


@pytest.fixture
async def raw(
    versioned: tuple[int, ApacheKafka], request: pytest.FixtureRequest
) -> AsyncIterator[RawProducer]:
    _, kafka = versioned
    producer = await RawProducer.of(kafka.bootstrap_servers, request.node.originalname)
    yield producer
    await producer.close()


def committed(kafka: ApacheKafka) -> list[bytes | None]:
    read = read_with_librdkafka(kafka.bootstrap_servers, "orders", isolation_level="read_committed")
    return [record.value for record in read]


async def test_api_versions_contain_the_transaction_feature(
    versioned: tuple[int, ApacheKafka], raw: RawProducer
) -> None:
    version, _ = versioned
    assert raw.transaction_version == version
    assert raw.connection.versions.finalized_features_epoch >= 0


async def test_readers_see_committed_and_no_aborted_records(
    versioned: tuple[int, ApacheKafka], raw: RawProducer
) -> None:
    version, kafka = versioned
    assert await raw.find() == 0
    assert await raw.init() == 0
    first = raw.producer_id, raw.epoch
    for outcome in (True, False, True):
        value = b"committed" if outcome else b"aborted"
        if version < 2:
            assert await raw.add("orders", 0, 1) == 0
        assert [await raw.produce("orders", partition, value) for partition in (0, 1)] == [0, 0]
        listed = await raw.ask(
            ListTransactionsRequest(state_filters=["Ongoing"], transactional_id_pattern="test.*")
        )
        assert [each.transactional_id for each in listed.transaction_states] == [raw.transactional_id]
        (state,) = (
            await raw.ask(DescribeTransactionsRequest(transactional_ids=[raw.transactional_id]))
        ).transaction_states
        assert (state.transaction_state, state.producer_id, state.producer_epoch) == (
            "Ongoing",
            raw.producer_id,
            raw.epoch,
        )
        described = await raw.ask(
            DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=(0,))])
        )
        producers = described.topics[0].partitions[0].active_producers
        assert [each.current_txn_start_offset >= 0 for each in producers] == [True]
        assert await raw.end(committed=outcome) == 0
    assert (raw.producer_id, raw.epoch) == ((first[0], first[1] + 3) if version == 2 else first)
    assert await raw.init() == 0  # waits until the last one is over
    assert committed(kafka) == [b"committed"] * 4


async def test_offsets_are_committed_with_a_transaction(
    versioned: tuple[int, ApacheKafka], raw: RawProducer
) -> None:
    version, _ = versioned
    assert [await raw.find(), await raw.find(group="readers"), await raw.init()] == [0, 0, 0]
    if version < 2:
        assert await raw.add_group("readers") == 0
    assert await raw.commit_offset("readers", "orders", 1, 7) == 0
    assert await raw.commit_offset("readers", "orders", 1, 7, member="nobody", generation=1) == 25

    async def offset() -> tuple[int, int]:
        topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=(1,))]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id="readers", topics=topics)], require_stable=True
        )
        (partition,) = (await raw.ask(request)).groups[0].topics[0].partitions
        return partition.committed_offset, partition.error_code

    assert await offset() == (-1, 88)
    assert await raw.end(committed=True) == 0
    assert await raw.init() == 0
    assert await offset() == (7, 0)
