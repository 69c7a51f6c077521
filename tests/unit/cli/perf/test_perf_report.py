from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from dataclasses import replace

import click
import pytest

from aioproducer.cli.perf.latencies import Latencies
from aioproducer.cli.perf.perf_report import run_and_report, to_dict
from aioproducer.cli.perf.perf_run import Outcome, Plan, Window
from aioproducer.config import ProducerConfig
from aioproducer.errors import InvalidRecord
from aioproducer.testing import Cluster


def plan_of(servers: str = "a:1,b:2", **changes: int) -> Plan:
    config = ProducerConfig(bootstrap_servers=servers, linger_ms=0)
    return Plan(
        config=config,
        topic="orders",
        run="perf-1",
        rate=None,
        **{"records": 300, "value_bytes": 20} | changes,
    )


async def test_what_was_acknowledged_is_told_with_how_to_audit_it(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 2}) as cluster:
        assert await run_and_report(plan_of(cluster.bootstrap_servers), as_json=False)
        told, _ = capsys.readouterr()
        assert "s: 300 records acknowledged, " in told
        assert re.search(r"^records acknowledged +300$", told, flags=re.MULTILINE)
        assert "latency p99.9" in told
        assert re.search(r"^sent with +send_many$", told, flags=re.MULTILINE)
        audit = f"orders --bootstrap-servers {cluster.bootstrap_servers} --run perf-1 --expect 300\n"
        assert told.endswith(f"Is all of it there? aioproducer audit {audit}")


async def test_json_is_all_that_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 2}) as cluster:
        assert await run_and_report(plan_of(cluster.bootstrap_servers), as_json=True)
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["run"], told["sent"], told["acknowledged"], told["failures"]) == ("perf-1", 300, 300, {})
    assert told["sent_with"] == "send_many"
    assert told["latency_ms"]["p50"] <= told["latency_ms"]["max"]
    assert "300 records acknowledged" in err


async def test_failures_are_told_and_are_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.on("produce", times=None).answer(InvalidRecord)
        assert not await run_and_report(plan_of(cluster.bootstrap_servers), as_json=False)
    told = capsys.readouterr().out
    assert "300 failed: InvalidRecord: " in told
    assert re.search(r"^latency p99.9 +-$", told, flags=re.MULTILINE)
    assert "audit" not in told


async def test_without_acks_nothing_is_called_acknowledged(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, acks=0, enable_idempotence=False)
        assert await run_and_report(replace(plan_of(), config=config), as_json=False)
    told = capsys.readouterr().out
    assert "records written, acks=0" in told
    assert "acknowledged" not in told


async def test_sigterm_ends_it_as_ctrl_c_does(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        running = asyncio.create_task(
            run_and_report(plan_of(cluster.bootstrap_servers, records=10**9), as_json=False)
        )
        await cluster.wait_for_records("orders", 0, 500)
        os.kill(os.getpid(), signal.SIGTERM)
        assert not await running
    assert re.search(r"^Interrupted: [\d,]+ of 1,000,000,000 records", capsys.readouterr().out, re.MULTILINE)


async def signalled(cluster: Cluster, request: str) -> bool:
    """Report while *request* is not answered, and signals come until it ends."""
    unanswered = cluster.on(request, times=None).drop()
    running = asyncio.create_task(run_and_report(plan_of(cluster.bootstrap_servers), as_json=False))
    await unanswered.happened()
    while not running.done():
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
    unanswered.remove()
    return await running


async def test_a_signal_while_it_starts_gives_it_up_without_a_traceback() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        with pytest.raises(click.Abort):
            await signalled(cluster, "metadata")


async def test_a_second_signal_stops_the_waiting_and_tells_what_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        assert not await signalled(cluster, "produce")
    told = capsys.readouterr().out
    assert "300 failed: ProducerClosed: " in told
    assert re.search(r"^records acknowledged +0$", told, flags=re.MULTILINE)


def test_rates_are_of_the_time_that_the_records_took() -> None:
    outcome = Outcome(plan_of(records=4, value_bytes=1024 * 1024), sent=4, seconds=2.0)
    for each in range(4):
        outcome.latencies.add(each / 1000)
    outcome.windows.append(Window(0.0, 1.0, Latencies()))
    told = to_dict(outcome)
    assert (told["records_per_second"], told["mib_per_second"]) == (2, 2)
    assert told["latency_ms"]["mean"] == pytest.approx(1.5)
    assert told["latency_ms"]["max"] == 3
    assert told["windows"][0]["records_per_second"] == 0
