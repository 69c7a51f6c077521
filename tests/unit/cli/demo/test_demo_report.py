from __future__ import annotations

import asyncio
import io
from dataclasses import replace

import pytest
from rich.console import Console

from aioproducer.cli.demo import demo_report
from aioproducer.cli.demo.demo_run import Follow, Outcome, Plan
from aioproducer.cli.demo.measure import Measured
from aioproducer.config import ProducerConfig
from aioproducer.types import RecordMetadata

PLAN = Plan(None, records=60, partitions=6, compression="zstd")
ACKNOWLEDGED = RecordMetadata("t", 0, 0, 0, log_append_time=False)


def part(records: int, seconds: float, *, latencies_s: tuple[float, ...] = ()) -> Measured:
    return Measured(
        seconds=seconds,
        batches=4,
        bytes_before_compression=4_500,
        bytes_sent=1_000,
        acknowledged=[ACKNOWLEDGED] * records,
        latencies_s=latencies_s,
    )


OUTCOME = Outcome(
    plan=PLAN,
    config=ProducerConfig(bootstrap_servers="a:1", compression_type="zstd"),
    topic="aioproducer-demo-1f",
    warm_up=part(2, 0.5),
    one_by_one=part(10, 0.004, latencies_s=(0.001, 0.0012, 0.25)),
    in_bulk=part(48, 0.002),
    records_read=60,
    seconds_reading=1.25,
    flaws={},
)


class Terminal(io.StringIO):
    """File that is a terminal."""

    def isatty(self) -> bool:
        return True


async def reported(
    monkeypatch: pytest.MonkeyPatch, outcome: Outcome, *, terminal: bool = False
) -> tuple[bool, str]:
    async def run(plan: Plan, follow: Follow) -> Outcome:
        assert plan is outcome.plan
        async with follow("sending", 60, lambda: 45):
            await asyncio.sleep(0)  # the bar's turn
        return outcome

    monkeypatch.setattr(demo_report, "run", run)
    screen = Terminal() if terminal else io.StringIO()
    console = Console(file=screen, width=300, force_terminal=terminal, highlight=False)
    return await demo_report.run_and_report(outcome.plan, console), screen.getvalue()


async def test_the_table_has_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    good, text = await reported(monkeypatch, OUTCOME)
    assert good
    rows = {line[:17].strip(): line[17:].split() for line in text.splitlines()}
    assert rows["records"] == ["10", "48"]
    assert rows["seconds"] == ["0.00", "0.00"]
    assert rows["records/s"] == ["2,500", "24,000"]
    assert rows["latency p50"] == ["1.2", "ms", "-"]
    assert rows["latency p99"] == ["250.0", "ms", "-"]
    assert rows["batches"] == ["4", "4"]
    assert rows["records per batch"] == ["2.5", "12.0"]
    assert rows["compression ratio"] == ["4.5", "4.5"]
    assert "60 events of a shop's click stream to 3 brokers in this process\n" in text
    assert "6 partitions, keyed by customer, acks=all, linger_ms=5, compression_type=zstd" in text
    assert "the 2 records that were sent before" in text
    assert "The brokers share this process" in text
    assert "Read back 60 records in 1.25 s: each is there once, unaltered, in order of its key" in text
    assert "\x1b" not in text, "no colours and no bars where nobody looks"


async def test_flaws_are_a_failure_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    flawed = replace(OUTCOME, records_read=58, flaws={"lost": 2, "out of order": 1_000})
    good, text = await reported(monkeypatch, flawed)
    assert not good
    assert text.endswith("Read back 58 records in 1.25 s: FAILED, 2 lost, 1,000 out of order\n")
    assert "each is there once" not in text


async def test_on_another_cluster_it_says_what_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ProducerConfig(bootstrap_servers="a:1,b:1")
    plan = replace(PLAN, config=config, partitions=1)
    _, text = await reported(monkeypatch, replace(OUTCOME, plan=plan, config=config))
    assert "click stream to a:1,b:1\n" in text
    assert "1 partition, keyed" in text
    assert "Topic aioproducer-demo-1f stays on the cluster." in text
    assert "in this process" not in text


async def test_on_a_terminal_a_bar_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = await reported(monkeypatch, OUTCOME, terminal=True)
    assert "sending" in text
    assert "45/60" in text
