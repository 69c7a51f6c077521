from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import (
    ConfigError,
    ConnectionFailed,
    ProducerClosed,
    ProducerConfig,
    TransactionAdmin,
    WrongLoop,
)
from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.testing import Cluster, in_virtual_time

PREPARED = PreparedTransaction("orders-1", 7, 3, 2, began_at_ms=1_000, timeout_ms=60_000)


def test_admin_accepts_the_options_of_a_producer() -> None:
    assert TransactionAdmin("a:1", client_id="ends").config.client_id == "ends"
    config = ProducerConfig(bootstrap_servers="a:1")
    assert TransactionAdmin.from_config(config).config is config
    with pytest.raises(ConfigError, match="client_id"):
        TransactionAdmin("a:1", clientid="ends")  # type: ignore[call-arg]


def calls(admin: TransactionAdmin) -> list[Any]:
    return [
        admin.end(PREPARED, commit=True),
        admin.end_many([PREPARED], commit=True),
        admin.describe("orders-1"),
        admin.list(),
        admin.fence("orders-1"),
    ]


@in_virtual_time
async def test_text_of_a_prepared_transaction_is_refused() -> None:
    async with (
        Cluster(transport="memory") as cluster,
        TransactionAdmin(cluster.bootstrap_servers) as admin,
    ):
        text: Any = str(PREPARED)
        for call in (
            admin.end(text, commit=True),
            admin.end_many([text], commit=True),
            admin.end_many(PREPARED, commit=True),  # type: ignore[arg-type]
        ):
            with pytest.raises(TypeError, match=r"^prepared is a str; expected a PreparedTransaction"):
                _ = await call
        assert cluster.request_count("end_txn") == 0


@in_virtual_time
async def test_admin_works_only_inside_its_block() -> None:
    async with Cluster(transport="memory") as cluster:
        before = asyncio.all_tasks()
        admin = TransactionAdmin(cluster.bootstrap_servers)
        for call in calls(admin):
            with pytest.raises(ProducerClosed, match="async with"):
                await call
        for _ in range(2):
            async with admin as entered:
                assert entered is admin
                assert await admin.end_many([], commit=True) == {}
                with pytest.raises(ProducerClosed, match="already open"):
                    await admin.__aenter__()
        for call in calls(admin):
            with pytest.raises(ProducerClosed, match="async with"):
                await call
        assert not {task for task in asyncio.all_tasks() - before if "testing" not in task.get_name()}


@in_virtual_time
async def test_unreachable_cluster_is_named_and_leaves_no_task() -> None:
    async with Cluster(transport="memory") as cluster:
        servers = cluster.bootstrap_servers
        await cluster.stop_broker(1)
        before = asyncio.all_tasks()
        with pytest.raises(ConnectionFailed, match=servers):
            await TransactionAdmin(servers).__aenter__()
        assert asyncio.all_tasks() == before


async def test_admin_belongs_to_its_event_loop() -> None:
    async with Cluster() as cluster, TransactionAdmin(cluster.bootstrap_servers) as admin:

        def elsewhere() -> None:
            with pytest.raises(WrongLoop):
                asyncio.run(admin.end_many([], commit=True))

        await asyncio.to_thread(elsewhere)


@in_virtual_time
async def test_negative_timeout_is_refused() -> None:
    async with Cluster(transport="memory") as cluster, TransactionAdmin(cluster.bootstrap_servers) as admin:
        with pytest.raises(ValueError, match="timeout_s"):
            await admin.end(PREPARED, commit=True, timeout_s=-1)
