from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer.audit import Audit, AuditReport, sequence_of
from aioproducer.cli.perf.perf_run import (
    CALLS,
    RECORDS_A_CALL,
    VALUES_BYTES,
    Plan,
    Window,
    run,
    values_of,
)
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConnectionFailed, InvalidRecord, MetadataTimeout
from aioproducer.testing import Cluster, in_virtual_time

RUN = "perf-1"


def plan_of(cluster: Cluster, *, records: int, rate: float | None = None, **options: Any) -> Plan:
    return Plan(
        config=ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, **options),
        topic="orders",
        run=RUN,
        records=records,
        value_bytes=20,
        rate=rate,
    )


def audited(cluster: Cluster, expect: int) -> AuditReport:
    audit = Audit(RUN, expect=expect)
    for partition in range(2):
        for record in cluster.records("orders", partition):
            assert len(record.value or b"") == 20
            audit.add(partition, record.offset, sequence_of(record.headers))
    return audit.report()


def ignore(_: Window) -> None:
    pass


@in_virtual_time
async def test_all_records_arrive_with_their_run_and_sequence() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        outcome = await run(plan_of(cluster, records=1_000), ignore)
        assert audited(cluster, 1_000).ok
    assert (outcome.sent, outcome.acknowledged, outcome.complete) == (1_000, 1_000, True)
    assert not outcome.failures


@in_virtual_time
async def test_at_a_rate_it_takes_its_time_and_tells_of_each_window() -> None:
    windows: list[Window] = []
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        outcome = await run(plan_of(cluster, records=1_200, rate=100), windows.append)
    assert outcome.seconds == pytest.approx(12, abs=0.1)
    assert outcome.windows == windows
    assert [window.latencies.count for window in windows] == [
        pytest.approx(500, abs=2),
        pytest.approx(500, abs=2),
        pytest.approx(200, abs=2),
    ]
    assert [window.began_s for window in windows] == [0, pytest.approx(5), pytest.approx(10)]
    assert sum(window.latencies.count for window in windows) == outcome.latencies.count == 1_200


@in_virtual_time
async def test_latencies_are_from_the_call_to_the_acknowledgement() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory", latency_s=0.05) as cluster:
        outcome = await run(plan_of(cluster, records=10, linger_ms=0), ignore)
    assert 0.099 < outcome.latencies.percentile_s(0.5) < 0.11


@in_virtual_time
async def test_failures_are_counted_by_their_kind() -> None:
    async with Cluster(topics={"orders": 1}, transport="memory") as cluster:
        cluster.on("produce").answer(InvalidRecord)
        plan = plan_of(cluster, records=500, rate=1_000, linger_ms=0)
        outcome = await run(plan, ignore)
    [(failure, count)] = outcome.failures.items()
    assert failure.startswith("InvalidRecord: ")
    assert count == 500 - outcome.acknowledged > 0
    assert not outcome.complete


@in_virtual_time
async def test_records_that_are_not_even_taken_have_failed_too() -> None:
    async with Cluster(topics={"orders": 1}, transport="memory") as cluster:
        outcome = await run(plan_of(cluster, records=5, max_request_size=80), ignore)
    assert (outcome.sent, list(outcome.failures.values())) == (5, [5])
    assert [failure.split(":")[0] for failure in outcome.failures] == ["RecordTooLarge"]


@in_virtual_time
async def test_cancelled_it_waits_for_what_is_under_way_and_says_how_far_it_came() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        running = asyncio.create_task(run(plan_of(cluster, records=10_000, rate=100), ignore))
        await asyncio.sleep(3)
        running.cancel()
        outcome = await running
        assert audited(cluster, outcome.sent).ok
    assert outcome.sent == outcome.acknowledged == pytest.approx(300, abs=5)
    assert not outcome.complete


@in_virtual_time
async def test_cancelled_twice_it_gives_up() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        running = asyncio.create_task(run(plan_of(cluster, records=10_000, rate=100), ignore))
        await asyncio.sleep(2)
        cluster.freeze_broker(1)
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.sleep(1)
        assert not running.done()
        running.cancel()
        gave_up_at = asyncio.get_running_loop().time()
        outcome = await running
        assert asyncio.get_running_loop().time() - gave_up_at < 1
    [(failure, count)] = outcome.failures.items()
    assert failure.startswith("ProducerClosed: ")
    assert 0 < outcome.acknowledged == outcome.sent - count


@in_virtual_time
async def test_a_topic_that_is_not_there_is_told_soon() -> None:
    async with Cluster(transport="memory", auto_create_topics=False) as cluster:
        with pytest.raises(MetadataTimeout, match="no broker knew a topic 'orders' in 5 s"):
            await run(plan_of(cluster, records=1), ignore)


@in_virtual_time
async def test_without_a_cluster_nothing_is_sent() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        plan = plan_of(cluster, records=5)
    with pytest.raises(ConnectionFailed):
        await run(plan, ignore)


def sized(*, records: int, value_bytes: int) -> Plan:
    config = ProducerConfig(bootstrap_servers="a:1")
    return Plan(config=config, topic="t", run="r", records=records, value_bytes=value_bytes, rate=None)


@pytest.mark.parametrize(
    ("records", "value_bytes", "count"),
    [(10**6, 100, 1_000), (3, 100, 3), (10**6, VALUES_BYTES // 4, 4), (5, 2 * VALUES_BYTES, 1), (5, 0, 5)],
)
def test_there_are_as_many_different_values_as_memory_is_worth(
    records: int, value_bytes: int, count: int
) -> None:
    values = values_of(sized(records=records, value_bytes=value_bytes))
    assert [len(value) for value in values] == [value_bytes] * count
    assert len(set(values)) == (count if value_bytes else 1)
    assert values[0].isalpha() or not value_bytes


@in_virtual_time
async def test_as_fast_as_it_can_it_sends_in_bulk_and_at_a_rate_one_by_one() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        assert (await run(plan_of(cluster, records=10), ignore)).way == "send_many"
        assert (await run(plan_of(cluster, records=10, rate=100), ignore)).way == "enqueue"


@in_virtual_time
async def test_a_few_calls_are_under_way_and_stopping_waits_for_them() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        cluster.on("produce", times=None).delay(1.0)
        running = asyncio.create_task(run(plan_of(cluster, records=100_000), ignore))
        await asyncio.sleep(0.5)
        running.cancel()
        outcome = await running
        assert audited(cluster, outcome.sent).ok
    assert outcome.sent == outcome.acknowledged == CALLS * RECORDS_A_CALL
    assert not outcome.complete


@in_virtual_time
async def test_calls_that_are_given_up_have_failed() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        cluster.on("produce", times=None).delay(1_000)
        running = asyncio.create_task(run(plan_of(cluster, records=100_000), ignore))
        for _ in range(2):
            await asyncio.sleep(0.5)
            running.cancel()
        outcome = await running
    assert sum(outcome.failures.values()) == outcome.sent == CALLS * RECORDS_A_CALL
    assert [failure.split(":")[0] for failure in outcome.failures] == ["ProducerClosed"]
