"""The cost of an outage: the time to recover, and the requests, dials and log lines meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from aioproducer import DeliveryTimeout, Producer, RecordMetadata
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, now, producing, scenario

IMPATIENT: Mapping[str, Any] = {
    "linger_ms": 0,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 100,
}
PATIENT: Mapping[str, Any] = {"linger_ms": 0}
"""Kafka's defaults."""

BROKERS = 3


async def _one_each(producer: Producer) -> None:
    await asyncio.gather(*(producer.send(TOPIC, b"v", partition=each) for each in range(BROKERS)))


@for_each(("options", "recovery_s"), [(IMPATIENT, 0.2), (PATIENT, 1.3)])
@for_each("away_s", [3.0, 4.3, 5.0, 7.7, 20.4])
@scenario
async def test_returned_broker_is_found_soon_after_any_outage(
    away_s: float, options: Mapping[str, Any], recovery_s: float
) -> None:
    async with producing(BROKERS, BROKERS, **options) as (producer, cluster):
        await _one_each(producer)
        asked = cluster.request_count("metadata")
        await cluster.stop_broker(2)
        waiting = asyncio.create_task(producer.send(TOPIC, b"v", partition=1))
        await asyncio.sleep(away_s)
        assert cluster.request_count("metadata") - asked <= 60
        assert not waiting.done()
        await cluster.start_broker(2)
        back_at = now()
        await waiting
        assert now() - back_at <= recovery_s


@for_each(("options", "recovery_s"), [(IMPATIENT, 0.2), (PATIENT, 1.3)])
@for_each("away_s", [5.0, 5.7, 12.3])
@scenario
async def test_brokers_that_return_in_turn_are_each_found_soon(
    away_s: float, options: Mapping[str, Any], recovery_s: float
) -> None:
    """The first metadata responses have partitions without a leader."""
    async with producing(BROKERS, BROKERS, **options) as (producer, cluster):
        await _one_each(producer)
        for node_id in range(1, BROKERS + 1):
            await cluster.stop_broker(node_id)
        waiting = [asyncio.create_task(producer.send(TOPIC, b"v", partition=each)) for each in range(BROKERS)]
        await asyncio.sleep(away_s)
        for each, task in enumerate(waiting):
            await cluster.start_broker(1 + each)
            back_at = now()
            await task
            assert now() - back_at <= recovery_s
            await asyncio.sleep(4.4)  # long enough for the cluster to be given up as it is


@pytest.mark.parametrize("away", [{2}, {1, 2, 3}], ids=["one", "all"])
@scenario
async def test_outage_logs_its_begin_and_end(away: set[int], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioproducer")
    async with producing(BROKERS, BROKERS, **IMPATIENT) as (producer, cluster):
        for _ in range(2):
            await asyncio.sleep(30)
            caplog.clear()
            await _one_each(producer)
            for node_id in away:
                await cluster.stop_broker(node_id)
            waiting = asyncio.create_task(_one_each(producer))
            await asyncio.sleep(20)
            for node_id in away:
                await cluster.start_broker(node_id)
            await waiting
            await asyncio.sleep(2)
            told = Counter(
                (each.levelname, each.message.split()[0])
                for each in caplog.records
                if each.levelno >= logging.WARNING or "retry" not in each.message
            )
            expected = {("WARNING", "connection.lost"): len(away), ("INFO", "connection.opened"): len(away)}
            if len(away) == BROKERS:
                expected |= {
                    ("WARNING", "metadata.failed"): 1,
                    ("WARNING", "metadata.rebootstrap"): 1,
                    ("INFO", "metadata.recovered"): 1,
                }
            assert told == expected


@scenario
async def test_repeated_resets_log_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "aioproducer")
    async with producing(BROKERS, BROKERS, **IMPATIENT) as (producer, cluster):
        sending: list[asyncio.Future[RecordMetadata]] = []
        for _ in range(100):
            for node_id in range(1, BROKERS + 1):
                cluster.disconnect(node_id)
            sending += [producer.send_nowait(TOPIC, b"v", partition=each) for each in range(BROKERS)]
            await asyncio.sleep(0.2)
        await asyncio.gather(*sending)
    told = Counter(each.message.split()[0] for each in caplog.records)
    assert BROKERS <= told["connection.lost"] <= 2 * BROKERS
    assert told.total() <= 2 * BROKERS + 2


@scenario
async def test_endless_outage_is_logged_periodically(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "aioproducer")
    async with producing(**PATIENT) as (producer, cluster):
        await producer.send(TOPIC, b"v")
        await cluster.stop_broker(1)
        waiting = asyncio.create_task(producer.send(TOPIC, b"v"))
        await asyncio.sleep(110)
        told = [each.message for each in caplog.records if each.message.startswith("connection.failed")]
        assert 3 <= len(told) <= 4
        assert all("nothing listens on" in each for each in told)
        await cluster.start_broker(1)
        await waiting


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [False, True], ids=["away", "frozen"])
async def test_waiting_for_the_brokers_costs_next_to_no_processor_time(*, frozen: bool) -> None:
    """The one thing that virtual time does not show; all brokers, on real sockets, with records to be sent."""
    async with Cluster(brokers=BROKERS, topics={TOPIC: BROKERS}) as cluster:
        options = {
            **PATIENT,
            "delivery_timeout_ms": 2_000,
            "request_timeout_ms": 2_000,
            "retry_backoff_ms": 20,
        }
        async with Producer(cluster.bootstrap_servers, **options) as producer:
            await _one_each(producer)
            for node_id in range(1, BROKERS + 1):
                if frozen:
                    cluster.freeze_broker(node_id)
                else:
                    await cluster.stop_broker(node_id)
            began_at, spent_s = time.monotonic(), time.process_time()
            futures = [producer.send_nowait(TOPIC, b"v", partition=each % BROKERS) for each in range(300)]
            await asyncio.wait(futures)
            waited_s, spent_s = time.monotonic() - began_at, time.process_time() - spent_s
            assert {type(each.exception()) for each in futures} == {DeliveryTimeout}
            for node_id in range(1, BROKERS + 1):
                if frozen:
                    cluster.thaw_broker(node_id)
                else:
                    await cluster.start_broker(node_id)
        assert waited_s >= 1.9
        assert spent_s <= 0.15 * waited_s
