"""Starts that wait for a cluster, and starts without one."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioproducer import (
    AuthenticationFailed,
    ConnectionFailed,
    MetadataTimeout,
    MetadataUnavailable,
    Producer,
    ProducerClosed,
    SaslAuthenticationFailed,
    TransactionalIdAuthorizationFailed,
    TransactionTimeout,
)
from aioproducer.contrib.threads import ThreadedProducer
from aioproducer.testing import Cluster
from tests.scenarios.login_rig import producer_on, secured
from tests.scenarios.rig import TOPIC, cluster as open_cluster, now, scenario, values

UNUSED = "127.0.0.1:1"
"""Address without a listener."""


async def start_later(cluster: Cluster, *node_ids: int, after_s: float) -> None:
    await asyncio.sleep(after_s)
    for node_id in node_ids:
        await cluster.start_broker(node_id)


class TestWaitingStart:
    @scenario
    async def test_start_waits_for_a_broker_that_comes_later(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "aioproducer")
        async with open_cluster(brokers=2) as cluster:
            await cluster.stop_broker(1)
            await cluster.stop_broker(2)
            coming = asyncio.create_task(start_later(cluster, 1, 2, after_s=45))
            async with Producer(cluster.bootstrap_servers, bootstrap_timeout_ms=60_000) as producer:
                assert 45 <= now() <= 46.2  # the longest reconnect backoff, with its jitter
                assert producer.state == "ready"
                await producer.send(TOPIC, b"v")
            await coming
            failed = [each.getMessage() for each in caplog.records if "metadata.failed" in each.getMessage()]
            assert len(failed) == 2  # at once, and a reminder after 30 s
            assert "metadata.recovered" in caplog.text

    @pytest.mark.parametrize("by", ["option", "argument"])
    @scenario
    async def test_start_fails_with_the_last_cause_at_its_timeout(self, by: str) -> None:
        async with open_cluster() as cluster:
            await cluster.stop_broker(1)
            options = {"bootstrap_timeout_ms": 5_000} if by == "option" else {}
            producer = Producer(cluster.bootstrap_servers, **options)  # type: ignore[arg-type]
            with pytest.raises(ConnectionFailed, match="nothing listens on"):
                await producer.start(timeout_s=None if by == "option" else 5)
            assert 3.8 <= now() <= 5
            assert producer.state == "new"
            await cluster.start_broker(1)
            async with producer:
                await producer.send(TOPIC, b"v")

    @scenario
    async def test_silent_broker_does_not_extend_the_start_timeout(self) -> None:
        async with open_cluster() as cluster:
            cluster.freeze_broker(1)
            with pytest.raises(ConnectionFailed):
                await Producer(cluster.bootstrap_servers).start(timeout_s=3)
            assert now() == 3
            cluster.thaw_broker(1)

    @scenario
    async def test_start_timeout_of_0_overrides_the_option(self) -> None:
        async with open_cluster() as cluster:
            await cluster.stop_broker(1)
            with pytest.raises(ConnectionFailed):
                await Producer(cluster.bootstrap_servers, bootstrap_timeout_ms=60_000).start(timeout_s=0)
            assert now() == 0

    @scenario
    async def test_waiting_ends_when_a_late_address_refuses_as_well(self) -> None:
        async with secured("PLAIN", brokers=2) as cluster:
            cluster.on("sasl_authenticate", times=None).answer(SaslAuthenticationFailed)
            await cluster.stop_broker(2)
            coming = asyncio.create_task(start_later(cluster, 2, after_s=20))
            with pytest.raises(AuthenticationFailed):
                await producer_on(cluster, bootstrap_timeout_ms=60_000).start()
            assert 20 <= now() <= 40  # refused logins are repeated after up to 15 s
            await coming

    @pytest.mark.parametrize("brokers", [1, 2, 4])
    @scenario
    async def test_refused_logins_end_the_waiting(self, brokers: int) -> None:
        async with secured("PLAIN", brokers=brokers) as cluster:
            cluster.on("sasl_authenticate", times=None).answer(SaslAuthenticationFailed)
            with pytest.raises(AuthenticationFailed):
                await producer_on(cluster, bootstrap_timeout_ms=60_000).start()
            assert now() < 1
            assert cluster.request_count("sasl_authenticate") == min(brokers, 3)

    @scenario
    async def test_refused_certificate_ends_a_waiting_start(self) -> None:
        async with open_cluster(security_protocol="SSL") as cluster:
            options = cluster.client_options
            cluster.renew_certificates(new_authority=True)
            with pytest.raises(AuthenticationFailed):
                await Producer(cluster.bootstrap_servers, bootstrap_timeout_ms=60_000, **options).start()
            assert now() < 1

    @scenario
    async def test_start_waits_for_address_beside_one_that_refuses(self) -> None:
        async with secured("PLAIN", brokers=2) as cluster:
            cluster.on("sasl_authenticate", node=1, times=None).answer(SaslAuthenticationFailed)
            await cluster.stop_broker(2)
            coming = asyncio.create_task(start_later(cluster, 2, after_s=20))
            producer = producer_on(cluster, bootstrap_timeout_ms=60_000)
            await producer.start()
            assert 20 <= now() <= 40  # refused logins are repeated after up to 15 s
            assert cluster.request_count("sasl_authenticate", node=1) <= 8  # the pace of logins holds
            await coming
            await producer.close(0)

    @scenario
    async def test_start_ends_when_cancelled_or_closed(self) -> None:
        async with open_cluster() as cluster:
            await cluster.stop_broker(1)
            producer = Producer(cluster.bootstrap_servers, bootstrap_timeout_ms=60_000)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.start(), 2)
            assert producer.state == "new"
            starting = asyncio.create_task(producer.start())
            await asyncio.sleep(2)
            assert producer.state == "starting"
            assert await producer.close() == 0
            with pytest.raises(ProducerClosed):
                await starting
            assert now() == 4

    @pytest.mark.parametrize("timeout_s", [-1, float("nan"), "5", True])
    async def test_start_refuses_an_invalid_timeout(self, timeout_s: object) -> None:
        producer = Producer("localhost:9092")
        with pytest.raises((TypeError, ValueError), match="timeout_s"):
            await producer.start(timeout_s=timeout_s)  # type: ignore[arg-type]
        assert producer.state == "new"


class TestStartWithoutCluster:
    @scenario
    async def test_records_wait_for_the_cluster(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "aioproducer")
        async with open_cluster() as cluster:
            await cluster.stop_broker(1)
            async with Producer(cluster.bootstrap_servers, start_wait=False) as producer:
                assert now() == 0
                assert producer.state == "degraded"
                with pytest.raises(MetadataUnavailable):
                    _ = producer.send_nowait(TOPIC, b"v")
                assert producer.metrics()["producer"]["metadata_age"] is None
                sends = [
                    asyncio.create_task(producer.send(TOPIC, b"one")),
                    asyncio.create_task(producer.send_many(TOPIC, [b"two", b"three"])),
                    asyncio.create_task(producer.partitions_for(TOPIC)),
                    asyncio.create_task(start_later(cluster, 1, after_s=40)),
                ]
                await asyncio.sleep(39)
                assert producer.state == "degraded"
                await asyncio.gather(*sends)
                assert now() <= 41.5
                assert producer.state == "ready"
            assert values(cluster) == [b"one", b"two", b"three"]
            assert caplog.text.count("metadata.failed") == 2
            assert "metadata.rebootstrap" not in caplog.text

    @pytest.mark.parametrize("strategy", ["none", "rebootstrap"])
    @scenario
    async def test_idle_producer_connects_when_the_cluster_starts(self, strategy: str) -> None:
        async with open_cluster() as cluster:
            await cluster.stop_broker(1)
            producer = Producer(
                cluster.bootstrap_servers,
                start_wait=False,
                metadata_recovery_strategy=strategy,  # type: ignore[arg-type]
            )
            async with producer:
                await start_later(cluster, 1, after_s=20)
                await asyncio.sleep(1.3)
                assert producer.state == "ready"

    @scenario
    async def test_send_without_cluster_fails_after_max_block_ms(self) -> None:
        async with open_cluster() as cluster:
            await cluster.stop_broker(1)
            async with Producer(cluster.bootstrap_servers, start_wait=False, max_block_ms=3_000) as producer:
                with pytest.raises(MetadataTimeout, match="nothing listens on"):
                    await producer.send(TOPIC, b"v")
                assert now() == 3

    @scenario
    async def test_wait_overrides_the_option(self) -> None:
        async with open_cluster() as cluster:
            await cluster.stop_broker(1)
            producer = Producer(cluster.bootstrap_servers, start_wait=False)
            with pytest.raises(ConnectionFailed):
                await producer.start(wait=True)
            await producer.start()
            await producer.close()
            other = Producer(cluster.bootstrap_servers)
            await other.start(wait=False)
            assert other.state == "degraded"
            assert await other.close() == 0

    @scenario
    async def test_close_ends_the_calls_that_wait(self) -> None:
        async with open_cluster() as cluster:
            await cluster.stop_broker(1)
            async with Producer(cluster.bootstrap_servers, start_wait=False) as producer:
                sending = asyncio.create_task(producer.send(TOPIC, b"v"))
                await asyncio.sleep(1)
                assert await producer.close(0) == 1
                with pytest.raises(ProducerClosed):
                    await sending

    @scenario
    async def test_begin_waits_for_the_producer_id(self) -> None:
        async with open_cluster() as cluster:
            await cluster.stop_broker(1)
            options = {"start_wait": False, "transactional_id": "t", "max_block_ms": 10_000}
            async with Producer(cluster.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
                assert now() == 0
                with pytest.raises(TransactionTimeout):
                    await producer.begin_transaction()
                assert now() == 10
                coming = asyncio.create_task(start_later(cluster, 1, after_s=5))
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                await coming
            assert values(cluster)[:1] == [b"v"]

    @scenario
    async def test_begin_raises_a_refused_transactional_id(self) -> None:
        async with open_cluster() as cluster:
            cluster.on("init_producer_id", times=None).answer(TransactionalIdAuthorizationFailed)
            async with Producer(
                cluster.bootstrap_servers, start_wait=False, transactional_id="t"
            ) as producer:
                with pytest.raises(TransactionalIdAuthorizationFailed):
                    await producer.begin_transaction()
                assert producer.state == "failed"

    @scenario
    async def test_refused_logins_fail_sends_within_5_seconds(self) -> None:
        async with secured("PLAIN", brokers=2) as cluster:
            cluster.on("sasl_authenticate", times=None).answer(SaslAuthenticationFailed)
            async with producer_on(cluster, start_wait=False) as producer:
                with pytest.raises(AuthenticationFailed):
                    await producer.send(TOPIC, b"v")
                assert now() <= 5


class TestThreads:
    async def test_threaded_producer_starts_without_a_cluster(self) -> None:
        def run() -> None:
            with ThreadedProducer(UNUSED, start_wait=False, max_block_ms=100) as producer:
                assert producer.state == "degraded"
                with pytest.raises(MetadataTimeout):
                    producer.send(TOPIC, b"v")
            other = ThreadedProducer(UNUSED)
            with pytest.raises(ConnectionFailed):
                other.start(timeout_s=0.3)
            other.start(wait=False)
            assert other.close() == 0

        await asyncio.to_thread(run)
