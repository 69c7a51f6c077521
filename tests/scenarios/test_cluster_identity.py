"""Brokers of another cluster: at the address of a broker, and at all bootstrap addresses (KIP-1242)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioproducer import CommitFailed, DeliveryTimeout, Producer, ProducerError, TransactionOutcomeUnknown
from aioproducer._core.protocol.metadata import ApiVersionsRequest
from aioproducer.errors import NotEnoughReplicas, RebootstrapRequired
from aioproducer.testing import Cluster, broker as broker_module
from aioproducer.testing.handlers import connect
from tests.scenarios.rig import TOPIC, cluster, now, scenario, values

COUNTS = pytest.mark.parametrize("records", [1, 10, 2_000])
BOTH_KINDS = pytest.mark.parametrize("idempotent", [True, False])
IMPATIENT: dict[str, Any] = {"delivery_timeout_ms": 8_000, "request_timeout_ms": 4_000}


def offer(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """Let all brokers offer ApiVersions up to *version*."""
    offered = {**connect.OFFERED, ApiVersionsRequest.API_KEY: (0, version)}
    for module in connect, broker_module:
        monkeypatch.setattr(module, "OFFERED", offered)


@pytest.fixture(params=[5, 4], ids=["v5", "before 4.4"])
def api_versions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all brokers offer ApiVersions up to this version."""
    offer(monkeypatch, request.param)


@asynccontextmanager
async def two_clusters(brokers: int = 2) -> AsyncIterator[tuple[Cluster, Cluster]]:
    async with cluster(brokers, brokers) as ours, cluster(brokers, brokers) as other:
        yield ours, other


async def take_over(ours: Cluster, other: Cluster, *nodes: int) -> None:
    """Let nodes of *other* listen at the addresses of *ours*, without a change of metadata."""
    for node in nodes:
        await ours._broker(node).exchange(other._broker(node))
        other._state.nodes[node].address = other._broker(node).listener.address


async def send_all(producer: Producer, records: int, partitions: int = 2) -> list[Any]:
    calls = [producer.send(TOPIC, b"%d" % n, partition=n % partitions) for n in range(records)]
    return await asyncio.gather(*calls, return_exceptions=True)


def stored(opened: Cluster) -> int:
    return sum(len(values(opened, partition)) for partition in range(2))


def errors_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message.split()[0] for each in caplog.records if each.levelno >= logging.ERROR]


@COUNTS
@BOTH_KINDS
@pytest.mark.usefixtures("api_versions")
def test_another_cluster_at_an_address_receives_no_record(
    records: int, idempotent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @scenario
    async def tell() -> None:
        async with two_clusters() as (ours, other):
            servers = ours.bootstrap_servers
            async with Producer(servers, enable_idempotence=idempotent, **IMPATIENT) as producer:
                await send_all(producer, 2)
                await take_over(ours, other, 1)
                outcomes = await send_all(producer, records)
                assert stored(other) == 0
                failed = [each for each in outcomes if isinstance(each, ProducerError)]
                assert len(failed) == (records + 1) // 2
                assert {type(each) for each in failed} == {DeliveryTimeout}
                assert stored(ours) == 2 + records - len(failed)
                assert producer.state == "ready"
                await take_over(ours, other, 1)  # and back
                assert not [each for each in await send_all(producer, 2) if isinstance(each, Exception)]

    with caplog.at_level(logging.WARNING):
        tell()
    assert errors_of(caplog) == ["cluster.mismatch"]


@pytest.mark.usefixtures("api_versions")
@scenario
async def test_another_cluster_at_a_bootstrap_address_is_refused() -> None:
    """The address of the broker is also a bootstrap address; the other bootstrap servers report the known cluster."""
    for _ in range(10):  # the order of the addresses is random
        async with two_clusters(3) as (ours, other), Producer(ours.bootstrap_servers) as producer:
            await send_all(producer, 3, 3)
            await take_over(ours, other, 1)
            await producer.send(TOPIC, b"v", partition=1)
            await asyncio.sleep(20)
            assert producer._engine is not None
            assert producer._engine.updater.snapshot.cluster_id == ours.cluster_id
            assert stored(other) == 0


@COUNTS
@BOTH_KINDS
@pytest.mark.usefixtures("api_versions")
@scenario
async def test_bootstrap_servers_that_moved_are_followed(records: int, idempotent: bool) -> None:
    async with two_clusters() as (ours, other):
        servers = ours.bootstrap_servers
        async with Producer(servers, enable_idempotence=idempotent) as producer:
            await send_all(producer, 20)
            await take_over(ours, other, 1, 2)
            outcomes = await send_all(producer, records)
            assert not [each for each in outcomes if isinstance(each, Exception)]
            assert sorted(int(v or b"") for p in (0, 1) for v in values(other, p)) == list(range(records))
            for partition in (0, 1)[:records]:
                sent = [int(value or b"") for value in values(other, partition)]
                assert sent == sorted(sent)
                first = other.batches(TOPIC, partition)[0]
                assert first.base_sequence == (0 if idempotent else -1)
            assert producer.state == "ready"


@pytest.mark.usefixtures("api_versions")
@scenario
async def test_sequences_restart_with_another_producer_id() -> None:
    """Both clusters give the same ids, so another producer of the new cluster may have the old id of this one."""
    async with (
        two_clusters() as (ours, other),
        Producer(other.bootstrap_servers) as neighbour,
        Producer(ours.bootstrap_servers) as producer,
    ):
        for opened in producer, neighbour:
            await send_all(opened, 20)
        same = ours.batches(TOPIC, 0)[0].producer_id
        assert other.batches(TOPIC, 0)[0].producer_id == same
        ours.on("produce", times=1).close(before_append=False)
        retried = producer.send_nowait(TOPIC, b"retried", partition=0)
        await asyncio.sleep(0)
        await take_over(ours, other, 1, 2)
        await retried
        await producer.send(TOPIC, b"after", partition=0)
        assert values(other)[-2:] == [b"retried", b"after"]
        assert other.batches(TOPIC, 0)[-1].producer_id != same


@pytest.mark.usefixtures("api_versions")
@pytest.mark.parametrize("sent", [True, False])
@scenario
async def test_open_transaction_fails_and_the_next_one_commits(sent: bool) -> None:
    async with (
        two_clusters() as (ours, other),
        Producer(ours.bootstrap_servers, transactional_id="tx", **IMPATIENT) as producer,
    ):
        async with producer.transaction():
            await producer.send(TOPIC, b"old", partition=0)
        await producer.begin_transaction()
        if sent:
            await producer.send(TOPIC, b"lost", partition=0)
        await take_over(ours, other, 1, 2)
        await asyncio.sleep(3)
        with pytest.raises(RebootstrapRequired, match="the cluster changed from") as raised:
            await producer.send(TOPIC, b"late", partition=0)
        assert raised.value.abortable
        with pytest.raises(CommitFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"new", partition=0)
        committed = other.records(TOPIC, 0, isolation_level="read_committed")
        assert [record.value for record in committed] == [b"new"]


@pytest.mark.parametrize("before_append", [True, False])
@scenario
async def test_commit_without_an_answer_has_an_unknown_outcome(before_append: bool) -> None:
    async with two_clusters() as (ours, other):
        producer = Producer(ours.bootstrap_servers, transactional_id="tx", **IMPATIENT)
        await producer.start()
        await producer.begin_transaction()
        await producer.send(TOPIC, b"v", partition=0)
        ours.on("end_txn", times=None).drop(before_append=before_append)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(1)
        await take_over(ours, other, 1, 2)
        with pytest.raises(TransactionOutcomeUnknown):
            await committing
        assert producer.state == "failed"
        await producer.close()


@pytest.mark.usefixtures("api_versions")
@scenario
async def test_transactional_producer_initializes_again_while_idle() -> None:
    async with (
        two_clusters() as (ours, other),
        Producer(ours.bootstrap_servers, transactional_id="tx", **IMPATIENT) as producer,
    ):
        await take_over(ours, other, 1, 2)
        await asyncio.sleep(3)
        for value in b"a", b"b":
            async with producer.transaction():
                await producer.send(TOPIC, value, partition=0)
        committed = other.records(TOPIC, 0, isolation_level="read_committed")
        assert [record.value for record in committed] == [b"a", b"b"]


@pytest.mark.parametrize(
    "options", [{"metadata_cluster_check_enable": False}, {"metadata_recovery_strategy": "none"}]
)
@pytest.mark.usefixtures("api_versions")
@scenario
async def test_cluster_ids_are_ignored_without_the_check(options: dict[str, Any]) -> None:
    async with two_clusters() as (ours, other), Producer(ours.bootstrap_servers, **options) as producer:
        await send_all(producer, 2)
        asked = ours.request_count("metadata")
        await take_over(ours, other, 1, 2)
        assert not [each for each in await send_all(producer, 2) if isinstance(each, Exception)]
        assert stored(other) == 2
        assert ours.request_count("metadata") == asked


@scenario
async def test_null_cluster_id_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, 4)
    async with two_clusters() as (ours, other), Producer(ours.bootstrap_servers) as producer:
        await send_all(producer, 2)
        other.cluster_id = None
        await take_over(ours, other, 1, 2)
        assert not [each for each in await send_all(producer, 2) if isinstance(each, Exception)]
        assert stored(other) == 2


@pytest.mark.parametrize(("version", "questions"), [(5, 0), (4, 2)])
@scenario
async def test_check_costs_one_request_per_connection(
    version: int, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers before 4.4 are asked for their cluster id on each connection but the bootstrap connection."""
    offer(monkeypatch, version)
    async with cluster(3, 3) as opened, Producer(opened.bootstrap_servers) as producer:
        await producer.partitions_for(TOPIC)
        before = opened.request_count("metadata")
        await send_all(producer, 3, 3)
        assert opened.request_count("metadata") - before == questions
        assert opened.request_count("api_versions") == 3


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 0, "enable_idempotence": False},
        {"acks": 1, "enable_idempotence": False, "compression_type": "gzip"},
        {"acks": "all", "enable_idempotence": True, "compression_type": "gzip"},
    ],
    ids=["unacknowledged", "plain", "idempotent"],
)
@scenario
async def test_large_records_are_written_to_another_cluster(options: Any) -> None:
    async with two_clusters() as (ours, other):
        options = {"batch_size": 200_000, "max_request_size": 400_000, **IMPATIENT, **options}
        async with Producer(ours.bootstrap_servers, **options) as producer:
            await send_all(producer, 20)
            await take_over(ours, other, 1, 2)
            calls = [producer.send(TOPIC, bytes(50_000), partition=0) for _ in range(3)]
            assert not [each for each in await asyncio.gather(*calls) if each.partition]
            await other.wait_for_records(TOPIC, 0, 3)


@BOTH_KINDS
@scenario
async def test_retries_back_off_after_a_change_of_the_cluster(idempotent: bool) -> None:
    async with two_clusters() as (ours, other):
        options: Any = {"enable_idempotence": idempotent, "linger_ms": 0}
        async with Producer(ours.bootstrap_servers, **options) as producer:
            await send_all(producer, 20)
            await take_over(ours, other, 1, 2)
            await send_all(producer, 2)
            other.on("produce", times=5).answer(NotEnoughReplicas)
            began_at = now()
            await producer.send(TOPIC, b"refused five times", partition=0)
            assert now() - began_at > 1
