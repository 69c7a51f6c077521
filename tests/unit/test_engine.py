from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aioproducer._core.address import Address
from aioproducer._core.batching.batch import RecordFuture
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.interceptor_chain import InterceptorChain
from aioproducer._core.metadata import metadata_source as endpoints_module
from aioproducer._core.net.pool import ConnectionCache
from aioproducer._core.sender.loop import Sender
from aioproducer._engine import Engine
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConnectionFailed, ProducerClosed, ProducerError
from aioproducer.testing import Cluster, in_virtual_time
from tests.unit.floor_rig import settle

CLOSED = Failure(ProducerClosed, "closed")


class Rig:
    """An engine that was not started yet, on a cluster."""

    def __init__(self, cluster: Cluster, cache: ConnectionCache | None = None, **options: Any) -> None:
        self.cluster = cluster
        self.crashes: list[BaseException] = []
        config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, **options)
        self.engine = Engine(
            config,
            InterceptorChain(()),
            on_crash=self.crashes.append,
            on_fatal=lambda: None,
            on_transaction=lambda _: None,
            cache=cache,
        )

    async def append(self, value: bytes = b"value", partition: int = 0) -> RecordFuture:
        intake = self.engine.intake
        return await intake.append_when_possible(
            intake.check("orders", value, None, partition, (), None), now(), None
        )


@asynccontextmanager
async def rig(*, brokers: int = 1, auto_create_topics: bool = True, **options: Any) -> AsyncIterator[Rig]:
    async with Cluster(
        brokers=brokers,
        topics={"orders": brokers},
        transport="memory",
        auto_create_topics=auto_create_topics,
    ) as cluster:
        before = asyncio.all_tasks()
        rig = Rig(cluster, **options)
        yield rig
        await rig.engine.stop()
        ours = {task for task in asyncio.all_tasks() - before if "testing" not in task.get_name()}
        assert not ours


@asynccontextmanager
async def started(**options: Any) -> AsyncIterator[Rig]:
    async with rig(**options) as running:
        await running.engine.start()
        yield running


def now() -> float:
    return asyncio.get_running_loop().time()


PASSWORD: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "hunter2"}


class TestSecurity:
    @pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
    @in_virtual_time
    async def test_secured_records_are_never_sent_in_the_clear(self, protocol: Any) -> None:
        """The cluster would refuse plain text at bootstrap addresses and at nodes."""
        users = {"alice": "hunter2"} if protocol.startswith("SASL") else None
        async with Cluster(
            2, {"orders": 2}, transport="memory", security_protocol=protocol, users=users
        ) as cluster:
            running = Rig(cluster, **cluster.client_options)
            await running.engine.start()
            delivered = [await running.append(partition=partition) for partition in range(2)]
            await asyncio.wait(delivered)
            assert [each.exception() for each in delivered] == [None, None]
            await running.engine.stop()

    @in_virtual_time
    async def test_tls_client_sends_nothing_to_a_plaintext_broker(self) -> None:
        async with rig(security_protocol="SSL") as mistaken:
            with pytest.raises(ConnectionFailed):
                await mistaken.engine.start()
            assert mistaken.cluster.request_count("api_versions") == 0


class TestStart:
    @in_virtual_time
    async def test_engine_has_metadata_after_the_start(self) -> None:
        async with started(brokers=2) as running:
            assert set(running.engine.updater.snapshot.brokers) == {1, 2}

    @in_virtual_time
    async def test_failed_start_closes_everything(self) -> None:
        async with rig(reconnect_backoff_ms=1) as failing:
            await failing.cluster.stop_broker(1)
            with pytest.raises(ConnectionFailed, match=failing.cluster.bootstrap_servers):
                await failing.engine.start()

    @in_virtual_time
    async def test_start_fails_when_the_broker_is_silent(self) -> None:
        async with rig(socket_connection_setup_timeout_ms=2_000, request_timeout_ms=3_000) as failing:
            failing.cluster.freeze_broker(1)
            with pytest.raises(ConnectionFailed):
                await failing.engine.start()
            assert now() <= 5

    @in_virtual_time
    async def test_cancelled_start_closes_everything(self) -> None:
        async with rig() as cancelled:
            cancelled.cluster.freeze_broker(1)
            starting = asyncio.create_task(cancelled.engine.start())
            await settle()
            starting.cancel()
            await asyncio.wait([starting])
            assert starting.cancelled()

    @in_virtual_time
    async def test_cancelled_start_is_undone_before_its_scope_ends(self) -> None:
        """A scope of anyio cancels every await in the scope, including those of the cleanup."""
        async with rig() as cancelled:
            cancelled.cluster.freeze_broker(1)
            with anyio.move_on_after(1) as scope:
                await cancelled.engine.start()
            assert scope.cancelled_caught
            assert cancelled.engine._stopping is not None
            assert cancelled.engine._stopping.done()

    @in_virtual_time
    async def test_start_raises_producer_closed_when_stopped_meanwhile(self) -> None:
        async with rig() as stopped:
            stopped.cluster.freeze_broker(1)
            starting = asyncio.create_task(stopped.engine.start())
            await settle()
            await stopped.engine.stop()
            with pytest.raises(ProducerClosed, match="closed while it was starting"):
                await starting

    @in_virtual_time
    async def test_drained_returns_before_the_start(self) -> None:
        async with rig() as fresh:
            await fresh.engine.drained()

    async def test_start_skips_a_silent_address_of_a_host_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        peers: list[asyncio.StreamWriter] = []
        async with Cluster(topics={"orders": 1}) as cluster:
            silent = await asyncio.start_server(lambda _, writer: peers.append(writer), "127.0.0.1", 0)
            addresses = [silent.sockets[0].getsockname(), cluster.bootstrap_servers.split(":")]

            async def resolve(address: Address) -> list[Address]:
                return [Address(host, int(port)) for host, port in addresses]

            monkeypatch.setattr(endpoints_module, "endpoints", resolve)
            engine = Engine(
                ProducerConfig(bootstrap_servers="kafka.example:9092"),
                InterceptorChain(()),
                on_crash=print,
                on_fatal=lambda: None,
                on_transaction=lambda _: None,
            )
            began_at = now()
            await engine.start()
            assert now() - began_at < 1
            await engine.stop()
            for peer in peers:
                peer.close()
            silent.close()


class TestStop:
    @in_virtual_time
    async def test_stop_may_be_called_twice_at_once(self) -> None:
        async with started() as running:
            await asyncio.gather(running.engine.stop(), running.engine.stop())

    @in_virtual_time
    async def test_cancelled_stop_continues(self) -> None:
        async with started() as running:
            stopping = asyncio.create_task(running.engine.stop())
            await asyncio.sleep(0)
            stopping.cancel()
            await asyncio.wait([stopping])
            assert stopping.cancelled()

    @in_virtual_time
    async def test_draining_waits_for_every_outcome(self) -> None:
        async with started(linger_ms=1_000) as running:
            future = await running.append()
            await running.engine.drained()
            assert future.result().offset == 0
            assert now() < 1, "it does not linger"


class TestFailEverything:
    @in_virtual_time
    async def test_fail_everything_counts_records_and_pending_calls(self) -> None:
        async with started(linger_ms=1_000, buffer_memory=300) as running:
            first = await running.append(b"x" * 100)
            second = asyncio.create_task(running.append(b"x" * 200))
            unknown = asyncio.create_task(running.engine.updater.topic("nowhere", now() + 9))
            await asyncio.sleep(0)
            assert running.engine.fail_everything(CLOSED) == 2
            await asyncio.wait([second, unknown])
            for failed in (first, second, unknown):
                assert isinstance(failed.exception(), ProducerClosed)


class TestCrash:
    @in_virtual_time
    async def test_bug_in_the_sender_fails_all_records_with_its_cause(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bug = LookupError("a bug")

        def fail(_: Sender) -> None:
            raise bug

        async with started(linger_ms=1_000) as running:
            future = await running.append()
            monkeypatch.setattr(Sender, "_run_once", fail)
            running.engine._wakeup.ring()
            with pytest.raises(
                ProducerError, match="the sender task ended because of a bug in aioproducer: LookupError"
            ):
                await future
            error = future.exception()
            assert error is not None
            assert error.__cause__ is bug
            assert running.crashes == [bug]
            assert now() < 1

    @in_virtual_time
    async def test_bug_in_the_sender_leaves_no_connection_and_no_task(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: Sender) -> None:
            raise LookupError("a bug")

        async with rig() as running:
            before = asyncio.all_tasks()
            await running.engine.start()
            await (await running.append())
            monkeypatch.setattr(Sender, "_run_once", fail)
            running.engine._wakeup.ring()
            await asyncio.sleep(1)
            assert running.engine.pool.get(1) is None
            assert {
                task for task in asyncio.all_tasks() - before if "testing" not in task.get_name()
            } == set()

    @in_virtual_time
    async def test_cancelled_sender_counts_as_a_crash(self) -> None:
        async with started() as running:
            assert running.engine.sending is not None
            running.engine.sending.cancel()
            await asyncio.wait([running.engine.sending])
            await settle()
            assert [type(error) for error in running.crashes] == [asyncio.CancelledError]
            await asyncio.sleep(1)
            assert not any(broker._connections for broker in running.cluster._brokers.values())


class TestDegraded:
    @in_virtual_time
    async def test_engine_is_degraded_while_no_broker_is_reachable(self) -> None:
        async with started() as running:
            _ = await running.append()
            await asyncio.sleep(1)
            seen = [running.engine.degraded]
            await running.cluster.stop_broker(1)
            await asyncio.sleep(1)
            seen.append(running.engine.degraded)
            await running.cluster.start_broker(1)
            await asyncio.sleep(2)
            seen.append(running.engine.degraded)
            assert seen == [False, True, False]

    @in_virtual_time
    async def test_engine_is_not_degraded_with_one_reachable_broker(self) -> None:
        async with started(brokers=2) as running:
            for partition in range(2):
                _ = await running.append(partition=partition)
            await asyncio.sleep(1)
            await running.cluster.stop_broker(2)
            await asyncio.sleep(1)
            assert not running.engine.degraded

    @in_virtual_time
    async def test_removed_broker_does_not_make_the_engine_degraded(self) -> None:
        """The pool may still dial the broker for partitions without another leader."""
        async with started(brokers=2, connections_max_idle_ms=500, metadata_max_age_ms=60_000) as running:
            for partition in range(2):
                _ = await running.append(partition=partition)
            await asyncio.sleep(0.2)
            running.engine._disconnected(77, ConnectionFailed("refused"))
            await asyncio.sleep(2)
            assert running.engine.pool.least_loaded([1, 2]) is None
            assert not running.engine.degraded

    @in_virtual_time
    async def test_closed_idle_connection_does_not_make_it_degraded(self) -> None:
        async with started(connections_max_idle_ms=1_000, metadata_max_age_ms=60_000) as running:
            _ = await running.append()
            await asyncio.sleep(5)
            assert running.engine.pool.get(1) is None
            assert not running.engine.degraded

    @in_virtual_time
    async def test_reset_of_last_connection_is_no_outage(self) -> None:
        async with started(brokers=2) as running:
            for node_id in 1, 2:
                running.cluster.disconnect(node_id)
            seen = set()
            for _ in range(100):
                seen.add(running.engine.degraded)
                await asyncio.sleep(0.01)
            assert seen == {False}
            assert running.engine.pool.least_loaded([1, 2]) is not None

    @in_virtual_time
    async def test_idle_engine_reconnects_when_brokers_return(self) -> None:
        async with started(brokers=2) as running:
            for node_id in 1, 2:
                await running.cluster.stop_broker(node_id)
            await asyncio.sleep(60)
            assert running.engine.degraded
            for node_id in 1, 2:
                await running.cluster.start_broker(node_id)
            await asyncio.sleep(2)
            assert not running.engine.degraded
            assert running.engine.pool.least_loaded([1, 2]) is not None


class TestReport:
    @in_virtual_time
    async def test_report_has_totals_topics_and_nodes(self) -> None:
        async with started(buffer_memory=10_000) as running:
            future = await running.append(b"value")
            await future
            report = running.engine.report()
            host, port = running.cluster.bootstrap_servers.split(":")
            assert report["nodes"].keys() == {1}
            node = report["nodes"][1]
            assert (node["address"], node["connected"], node["requests_in_flight"]) == (
                f"{host}:{port}",
                True,
                0,
            )
            totals = report["producer"]
            assert report["topics"]["orders"]["record_send_total"] == totals["record_send_total"] == 1
            assert totals["metadata_age"] == pytest.approx(running.engine._loop.time(), abs=0.1)
            assert (
                totals.items()
                >= {
                    "requests_in_flight": 0,
                    "buffer_available_bytes": 10_000,
                    "buffer_total_bytes": 10_000,
                    "bufferpool_wait_time_ns_total": 0,
                    "calls_waiting": 0,
                    "batches_unfinished": 0,
                    "connection_count": 1,
                }.items()
            )

    @in_virtual_time
    async def test_report_lists_a_node_without_a_connection(self) -> None:
        async with started() as running:
            await running.engine.stop()
            [node] = running.engine.report()["nodes"].values()
            assert (node["connected"], node["requests_in_flight"]) == (False, 0)


class TestMetadata:
    @in_virtual_time
    async def test_deleted_topic_is_forgotten(self) -> None:
        async with started(metadata_max_age_ms=1_000, auto_create_topics=False) as running:
            future = await running.append()
            await future
            running.cluster.delete_topic("orders")
            await asyncio.sleep(3)
            assert "orders" not in running.engine.accumulator.topics
