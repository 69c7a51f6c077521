"""Transactions prepared by one process and ended by another while brokers fail: results match the readers."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import (
    PreparedTransaction,
    Producer,
    TransactionAdmin,
    TransactionLost,
    TransactionOutcomeUnknown,
)
from aioproducer.testing import Cluster
from tests.scenarios.rig import TOPIC, scenario
from tests.unit.test_topic_client import without_brokers

NAME = "orders-1"


async def prepare(cluster: Cluster, *, timeout_ms: int = 60_000) -> PreparedTransaction:
    async with (
        Producer(
            cluster.bootstrap_servers, transactional_id=NAME, transaction_timeout_ms=timeout_ms
        ) as producer,
        producer.transaction() as transaction,
    ):
        await producer.send(TOPIC, b"v", partition=0)
        return await transaction.prepare()


def committed(cluster: Cluster) -> int:
    return len(cluster.records(TOPIC, 0, isolation_level="read_committed"))


def cluster_of(version: int, brokers: int = 2) -> Cluster:
    return Cluster(brokers, topics={TOPIC: 1}, transport="memory", transaction_version=version)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
@scenario
async def test_end_with_a_lost_response_is_retried(version: int, commit: bool) -> None:
    async with cluster_of(version) as cluster:
        prepared = await prepare(cluster)
        cluster.on("end_txn", times=3).close()
        async with TransactionAdmin(cluster.bootstrap_servers) as admin:
            await admin.end(prepared, commit=commit)
            await admin.end(prepared, commit=commit)
        await asyncio.sleep(1)
        assert committed(cluster) == commit


@pytest.mark.parametrize("version", [1, 2])
@scenario
async def test_end_follows_a_moved_coordinator(version: int) -> None:
    async with cluster_of(version) as cluster:
        prepared = await prepare(cluster)
        async with TransactionAdmin(cluster.bootstrap_servers) as admin:
            await admin.describe(NAME)
            was = cluster.coordinator(NAME)
            cluster.move_coordinator(NAME, to_broker=1 if was == 2 else 2)
            await admin.end(prepared, commit=True)
        await asyncio.sleep(1)
        assert committed(cluster) == 1


@scenario
async def test_end_follows_the_successor_of_a_frozen_coordinator() -> None:
    async with cluster_of(2) as cluster:
        prepared = await prepare(cluster)
        was = cluster.coordinator(NAME)
        assert was is not None
        async with TransactionAdmin(cluster.bootstrap_servers) as admin:
            await admin.describe(NAME)
            cluster.freeze_broker(was)
            ending = asyncio.create_task(admin.end(prepared, commit=True))
            await asyncio.sleep(3)
            cluster.move_coordinator(NAME, to_broker=1 if was == 2 else 2)
            began_at = asyncio.get_running_loop().time()
            await ending
            assert asyncio.get_running_loop().time() - began_at < 5
        cluster.thaw_broker(was)
        await asyncio.sleep(1)
        assert committed(cluster) == 1


@scenario
async def test_expired_transaction_is_lost() -> None:
    async with cluster_of(2) as cluster:
        prepared = await prepare(cluster, timeout_ms=5_000)
        await asyncio.sleep(60)
        async with TransactionAdmin(cluster.bootstrap_servers) as admin:
            with pytest.raises(TransactionLost):
                await admin.end(prepared, commit=True)
            await admin.end(prepared, commit=False)
        assert committed(cluster) == 0


@scenario
async def test_end_waits_out_an_outage_or_reports_it() -> None:
    async with cluster_of(2, brokers=1) as cluster:
        prepared = await prepare(cluster)
        async with TransactionAdmin(cluster.bootstrap_servers) as admin:
            cluster.on("end_txn").drop()
            with pytest.raises(TransactionOutcomeUnknown, match="within 1 s"):
                await admin.end(prepared, commit=True, timeout_s=1)
            ending = asyncio.create_task(admin.end(prepared, commit=True))
            await cluster.stop_broker(1)
            await asyncio.sleep(20)
            await cluster.start_broker(1)
            await ending
        await asyncio.sleep(1)
        assert committed(cluster) == 1


@scenario
async def test_list_waits_for_brokers_that_start_up() -> None:
    async with cluster_of(2) as cluster:
        await prepare(cluster)
        async with TransactionAdmin(cluster.bootstrap_servers) as admin:
            starting = cluster.on("metadata", times=3).rewrite(without_brokers(TOPIC))
            assert [each.transactional_id for each in await admin.list(states=["Ongoing"])] == [NAME]
            assert starting.hits == 3
