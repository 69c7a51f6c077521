from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from dataclasses import replace
from typing import Any

import click
import pytest

from aioproducer.audit import Audit, AuditReport, sequence_of
from aioproducer.cli.perf_command import (
    CALLS,
    RECORDS_A_CALL,
    VALUES_BYTES,
    Latencies,
    PerfArguments,
    PerfOutcome,
    Window,
    run,
    run_and_report,
    to_dict,
    values_of,
)
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConnectionFailed, InvalidRecord, MetadataTimeout
from aioproducer.testing import Cluster, in_virtual_time
from tests.cases import for_each


def of(*latencies_s: float) -> Latencies:
    latencies = Latencies()
    for each in latencies_s:
        latencies.add(each)
    return latencies


def test_latencies_are_zero_without_records() -> None:
    none = of()
    assert (none.count, none.mean_s, none.percentile_s(0.99), none.longest_s) == (0, 0, 0, 0)


def test_latencies_have_count_and_mean() -> None:
    latencies = of(0.001, 0.002, 0.006)
    assert latencies.count == 3
    assert latencies.mean_s == pytest.approx(0.003)
    assert latencies.longest_s == 0.006


def test_highest_percentile_is_the_longest_latency() -> None:
    assert of(0.0015, 0.7).percentile_s(1) == 0.7


def test_zero_latency_is_counted() -> None:
    assert of(0.0, 0.0).percentile_s(0.5) == 0.0


def test_equal_latencies_are_counted_together() -> None:
    together, one_by_one = Latencies(), Latencies()
    together.add(0.5, 3)
    together.add(1.0, 0)
    for _ in range(3):
        one_by_one.add(0.5)
    assert vars(together) == vars(one_by_one)


RUN = "perf-1"


def plan_of(cluster: Cluster, *, records: int, rate: float | None = None, **options: Any) -> PerfArguments:
    return PerfArguments(
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
async def test_perf_with_rate_reports_each_window() -> None:
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
async def test_latency_is_from_call_to_acknowledgement() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory", latency_s=0.05) as cluster:
        outcome = await run(plan_of(cluster, records=10, linger_ms=0), ignore)
    assert 0.099 < outcome.latencies.percentile_s(0.5) < 0.11


@in_virtual_time
async def test_failures_are_counted_by_their_kind() -> None:
    async with Cluster(topics={"orders": 1}, transport="memory") as cluster:
        cluster.on("produce").answer(InvalidRecord)
        arguments = plan_of(cluster, records=500, rate=1_000, linger_ms=0)
        outcome = await run(arguments, ignore)
    [(failure, count)] = outcome.failures.items()
    assert failure.startswith("InvalidRecord: ")
    assert count == 500 - outcome.acknowledged > 0
    assert not outcome.complete


@in_virtual_time
async def test_rejected_records_count_as_failed() -> None:
    async with Cluster(topics={"orders": 1}, transport="memory") as cluster:
        outcome = await run(plan_of(cluster, records=5, max_request_size=80), ignore)
    assert (outcome.sent, list(outcome.failures.values())) == (5, [5])
    assert [failure.split(":")[0] for failure in outcome.failures] == ["RecordTooLarge"]


@in_virtual_time
async def test_cancelled_run_waits_for_sent_records() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        running = asyncio.create_task(run(plan_of(cluster, records=10_000, rate=100), ignore))
        await asyncio.sleep(3)
        running.cancel()
        outcome = await running
        assert audited(cluster, outcome.sent).ok
    assert outcome.sent == outcome.acknowledged == pytest.approx(300, abs=5)
    assert not outcome.complete


@in_virtual_time
async def test_second_cancel_ends_the_waiting() -> None:
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
async def test_perf_reports_missing_topic() -> None:
    async with Cluster(transport="memory", auto_create_topics=False) as cluster:
        with pytest.raises(MetadataTimeout, match="no broker knew a topic 'orders' in 5 s"):
            await run(plan_of(cluster, records=1), ignore)


@in_virtual_time
async def test_perf_without_a_cluster_fails() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        arguments = plan_of(cluster, records=5)
    with pytest.raises(ConnectionFailed):
        await run(arguments, ignore)


def sized(*, records: int, value_bytes: int) -> PerfArguments:
    config = ProducerConfig(bootstrap_servers="a:1")
    return PerfArguments(
        config=config, topic="t", run="r", records=records, value_bytes=value_bytes, rate=None
    )


@for_each(
    ("records", "value_bytes", "count"),
    [(10**6, 100, 1_000), (3, 100, 3), (10**6, VALUES_BYTES // 4, 4), (5, 2 * VALUES_BYTES, 1), (5, 0, 5)],
)
def test_number_of_values_is_bounded_by_memory(records: int, value_bytes: int, count: int) -> None:
    values = values_of(sized(records=records, value_bytes=value_bytes))
    assert [len(value) for value in values] == [value_bytes] * count
    assert len(set(values)) == (count if value_bytes else 1)
    assert values[0].isalpha() or not value_bytes


@in_virtual_time
async def test_rate_selects_enqueue_instead_of_send_many() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        assert (await run(plan_of(cluster, records=10), ignore)).method == "send_many"
        assert (await run(plan_of(cluster, records=10, rate=100), ignore)).method == "enqueue"


@in_virtual_time
async def test_cancel_waits_for_concurrent_calls() -> None:
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
async def test_abandoned_calls_count_as_failed() -> None:
    async with Cluster(topics={"orders": 2}, transport="memory") as cluster:
        cluster.on("produce", times=None).delay(1_000)
        running = asyncio.create_task(run(plan_of(cluster, records=100_000), ignore))
        for _ in range(2):
            await asyncio.sleep(0.5)
            running.cancel()
        outcome = await running
    assert sum(outcome.failures.values()) == outcome.sent == CALLS * RECORDS_A_CALL
    assert [failure.split(":")[0] for failure in outcome.failures] == ["ProducerClosed"]


def planned(servers: str = "a:1,b:2", **changes: int) -> PerfArguments:
    config = ProducerConfig(bootstrap_servers=servers, linger_ms=0)
    return PerfArguments(
        config=config,
        topic="orders",
        run="perf-1",
        rate=None,
        **{"records": 300, "value_bytes": 20} | changes,
    )


async def test_perf_report_has_audit_command(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 2}) as cluster:
        assert await run_and_report(planned(cluster.bootstrap_servers), as_json=False)
        told, _ = capsys.readouterr()
        assert "s: 300 records acknowledged, " in told
        assert re.search(r"^records acknowledged +300$", told, flags=re.MULTILINE)
        assert "latency p99.9" in told
        assert re.search(r"^sent with +send_many$", told, flags=re.MULTILINE)
        audit = f"orders --bootstrap-servers {cluster.bootstrap_servers} --run perf-1 --expect 300\n"
        assert told.endswith(f"Is all of it there? aioproducer audit {audit}")


async def test_perf_json_is_alone_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 2}) as cluster:
        assert await run_and_report(planned(cluster.bootstrap_servers), as_json=True)
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["run"], told["sent"], told["acknowledged"], told["failures"]) == ("perf-1", 300, 300, {})
    assert told["sent_with"] == "send_many"
    assert told["latency_ms"]["p50"] <= told["latency_ms"]["max"]
    assert "300 records acknowledged" in err


async def test_perf_fails_and_reports_failures(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.on("produce", times=None).answer(InvalidRecord)
        assert not await run_and_report(planned(cluster.bootstrap_servers), as_json=False)
    told = capsys.readouterr().out
    assert "300 failed: InvalidRecord: " in told
    assert re.search(r"^latency p99.9 +-$", told, flags=re.MULTILINE)
    assert "audit" not in told


async def test_perf_report_with_acks_0_does_not_say_acknowledged(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, acks=0, enable_idempotence=False)
        assert await run_and_report(replace(planned(), config=config), as_json=False)
    told = capsys.readouterr().out
    assert "records written, acks=0" in told
    assert "acknowledged" not in told


async def test_sigterm_ends_perf(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        running = asyncio.create_task(
            run_and_report(planned(cluster.bootstrap_servers, records=10**9), as_json=False)
        )
        await cluster.wait_for_records("orders", 0, 500)
        os.kill(os.getpid(), signal.SIGTERM)
        assert not await running
    assert re.search(r"^Interrupted: [\d,]+ of 1,000,000,000 records", capsys.readouterr().out, re.MULTILINE)


async def signalled(cluster: Cluster, request: str) -> bool:
    """Run perf with *request* unanswered, and send signals until it ends."""
    unanswered = cluster.on(request, times=None).drop()
    running = asyncio.create_task(run_and_report(planned(cluster.bootstrap_servers), as_json=False))
    await unanswered.happened()
    while not running.done():
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
    unanswered.remove()
    return await running


async def test_signal_during_startup_aborts_perf() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        with pytest.raises(click.Abort):
            await signalled(cluster, "metadata")


async def test_second_signal_ends_waiting_with_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        assert not await signalled(cluster, "produce")
    told = capsys.readouterr().out
    assert "300 failed: ProducerClosed: " in told
    assert re.search(r"^records acknowledged +0$", told, flags=re.MULTILINE)


def test_rate_is_of_the_duration_of_the_run() -> None:
    outcome = PerfOutcome(planned(records=4, value_bytes=1024 * 1024), sent=4, seconds=2.0)
    for each in range(4):
        outcome.latencies.add(each / 1000)
    outcome.windows.append(Window(0.0, 1.0, Latencies()))
    told = to_dict(outcome)
    assert (told["records_per_second"], told["mib_per_second"]) == (2, 2)
    assert told["latency_ms"]["mean"] == pytest.approx(1.5)
    assert told["latency_ms"]["max"] == 3
    assert told["windows"][0]["records_per_second"] == 0
