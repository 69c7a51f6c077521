from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from aioproducer.cli.send import send_report
from aioproducer.cli.send.arguments import SendArguments, SendOutcome, TransactionOutcome
from aioproducer.cli.send.send_report import progress
from aioproducer.cli.send.send_run import Sending
from aioproducer.cli.send.written_files import Checkpoint, DeadLetters
from aioproducer.config import ProducerConfig
from aioproducer.errors import DeliveryTimeout
from aioproducer.testing import ThreadedCluster
from tests.unit.cli.entry_point import run, run_on_terminal


def plan_of(path: Path, *, checkpoint: bool = False, run: str | None = None, **options: Any) -> SendArguments:
    path.write_bytes(b"a\nb\nc\n")
    return SendArguments(
        config=ProducerConfig(bootstrap_servers="a:1,b:2", **options),
        topic="orders",
        paths=[str(path)],
        run=run,
        checkpoint=Checkpoint(Path("orders.cp"), {}) if checkpoint else None,
    )


async def reported(monkeypatch: pytest.MonkeyPatch, outcome: SendOutcome, *, progress: int = 0) -> bool:
    async def run(self: Sending) -> SendOutcome:
        for _ in range(progress):
            self._on_progress(outcome)
        return outcome

    monkeypatch.setattr(Sending, "run", run)
    return await send_report.send_and_report(outcome.arguments)


def extend(outcome: SendOutcome, records: int) -> None:
    outcome.prefix.extend(b"x", records)
    outcome.prefix.place = f"in, line {records}"


async def test_complete_send_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = SendOutcome(
        plan_of(tmp_path / "in", run="nightly"), skipped=5, sent=4_000, acknowledged=4_000, seconds=2
    )
    extend(outcome, 4_005)
    assert await reported(monkeypatch, outcome)
    told, complaints = capsys.readouterr()
    assert told.splitlines() == [
        "5 records had been acknowledged before, and not sent again.",
        "4,000 records acknowledged in 2.00 s, 2,000 records/s",
        "Is all of it there? aioproducer audit orders --bootstrap-servers a:1,b:2 --run nightly --expect 4005",
        "If an earlier command was killed, its last records may be duplicated.",
    ]
    assert complaints == "", "no bar where there is no terminal"


async def test_report_with_acks_0_does_not_say_acknowledged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = SendOutcome(plan_of(tmp_path / "in", acks=0), sent=1, acknowledged=1)
    assert await reported(monkeypatch, outcome)
    assert capsys.readouterr().out == "1 record written, acks=0 in 0.00 s\n"


async def test_report_names_failures_and_repeated_records(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = SendOutcome(
        plan_of(tmp_path / "in", checkpoint=True, run="r"), sent=60, acknowledged=30, seconds=1
    )
    possibly_persisted = DeliveryTimeout("too late")
    possibly_persisted.possibly_persisted = True
    for _ in range(20):
        outcome.fail(possibly_persisted)
    outcome.first_failure = "in, line 11"
    outcome.stopped = "a record failed"
    extend(outcome, 10)
    assert not await reported(monkeypatch, outcome)
    assert capsys.readouterr().err.splitlines() == [
        "30 records acknowledged in 1.00 s, 30 records/s",
        "20 failed: DeliveryTimeout: too late",
        "20 of these may be in the topic.",
        "First failure: in, line 11",
        "Not waited for: 10 records, which may be in the topic.",
        "Stopped: a record failed",
        "Acknowledged from the beginning to in, line 10: 10 records",
        "Also acknowledged, after that part: 20 records; continuing from there repeats them.",
        "The same command continues from there: orders.cp has the position.",
    ]


async def test_report_says_when_checkpoint_is_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = plan_of(tmp_path / "in", checkpoint=True)
    outcome = SendOutcome(arguments, sent=3, acknowledged=3, stopped="the disk is full", is_saved=False)
    extend(outcome, 3)
    assert not await reported(monkeypatch, outcome)
    assert capsys.readouterr().err.splitlines()[-1] == (
        "orders.cp has a shorter part: the same command repeats the rest."
    )


async def test_closed_standard_error_does_not_end_send(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome, waited = SendOutcome(plan_of(tmp_path / "in"), sent=1, acknowledged=1), False

    async def run(_: Sending) -> SendOutcome:
        nonlocal waited
        os.kill(os.getpid(), signal.SIGINT)
        await interrupted.wait()
        await asyncio.sleep(0)  # behind what the signal says
        waited = True
        return outcome

    def interrupt(_: Sending) -> bool:
        interrupted.set()
        return True

    interrupted = asyncio.Event()
    monkeypatch.setattr(Sending, "run", run)
    monkeypatch.setattr(Sending, "interrupt", interrupt)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nobody:
        monkeypatch.setattr(sys, "stderr", nobody)
        assert await send_report.send_and_report(outcome.arguments)
        monkeypatch.undo()
    assert waited


async def test_report_says_when_no_record_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = SendOutcome(plan_of(tmp_path / "in"), stopped="in: Permission denied")
    assert not await reported(monkeypatch, outcome)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "Stopped: in: Permission denied",
        "Nothing is acknowledged from the beginning of the input.",
    ]


async def test_report_counts_acknowledgements_after_the_prefix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = SendOutcome(plan_of(tmp_path / "in"), sent=3, acknowledged=2, stopped="a record failed")
    outcome.fail(DeliveryTimeout("late"))
    assert not await reported(monkeypatch, outcome)
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "Nothing is acknowledged from the beginning of the input.",
        "Also acknowledged, after that part: 2 records; continuing from there repeats them.",
    ]


async def test_report_leaves_out_an_unverified_prefix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = SendOutcome(
        plan_of(tmp_path / "in", checkpoint=True), prefix_matched=False, stopped="interrupted"
    )
    extend(outcome, 0)
    assert not await reported(monkeypatch, outcome)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "Stopped: interrupted",
        "The command ended before the acknowledged part of orders.cp was read, and did not change the file.",
    ]


async def test_third_signal_does_not_suppress_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before, while_it_tells = signal.getsignal(signal.SIGTERM), []
    monkeypatch.setattr(
        Console, "print", lambda *_, **__: while_it_tells.append(signal.getsignal(signal.SIGTERM))
    )
    assert await reported(monkeypatch, SendOutcome(plan_of(tmp_path / "in")))
    assert while_it_tells
    assert before not in while_it_tells


async def test_terminal_shows_progress_and_output_has_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    outcome = SendOutcome(plan_of(tmp_path / "in"), sent=1_234, acknowledged=1_234)
    extend(outcome, 1_234)
    assert await reported(monkeypatch, outcome, progress=2)
    told, shown = capsys.readouterr()
    assert "0 bytes of 6 bytes (0 %), 1,234 acknowledged, " in shown
    assert told.startswith("1,234 records acknowledged")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signal_interrupts_send_and_handler_is_restored(
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    interrupted = asyncio.Event()

    def interrupt(_: Sending) -> bool:
        interrupted.set()
        return True

    outcome = SendOutcome(plan_of(tmp_path / "in"), stopped="interrupted")

    async def run(self: Sending) -> SendOutcome:
        os.kill(os.getpid(), number)
        await interrupted.wait()
        raise asyncio.CancelledError

    monkeypatch.setattr(Sending, "run", run)
    monkeypatch.setattr(Sending, "interrupt", interrupt)
    before = signal.getsignal(number)
    assert not await send_report.send_and_report(outcome.arguments)
    assert signal.getsignal(number) is before
    complaints = capsys.readouterr().err
    assert complaints.startswith(
        "Interrupted: waiting for what was sent. Press Ctrl-C again to stop waiting.\n"
    )
    assert "Stopped: interrupted\n" in complaints


async def test_report_says_when_no_failed_record_is_in_the_topic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = SendOutcome(plan_of(tmp_path / "in"), sent=1)
    outcome.fail(DeliveryTimeout("late"))
    assert not await reported(monkeypatch, outcome)
    assert "None of these is in the topic.\n" in capsys.readouterr().err


async def test_typed_input_has_a_hint_and_no_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    outcome = SendOutcome(replace(plan_of(tmp_path / "in"), paths=["-"]), sent=1, acknowledged=1)
    assert await reported(monkeypatch, outcome, progress=2)
    assert capsys.readouterr().err == "Type records, one line each; Ctrl-D ends them.\n"


class TestTransactions:
    async def test_committed_transaction_is_reported(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        arguments = plan_of(tmp_path / "in", transactional_id="nightly")
        outcome = SendOutcome(arguments, sent=3, acknowledged=3, transaction=TransactionOutcome.COMMITTED)
        assert await reported(monkeypatch, outcome)
        assert capsys.readouterr().out.splitlines() == [
            "3 records acknowledged in 0.00 s",
            TransactionOutcome.COMMITTED.value,
        ]

    @pytest.mark.parametrize(
        "ended", [TransactionOutcome.ABORTED, TransactionOutcome.LEFT_OPEN, TransactionOutcome.UNKNOWN]
    )
    async def test_failed_transaction_is_reported_without_partial_success(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
        ended: TransactionOutcome,
    ) -> None:
        arguments = plan_of(tmp_path / "in", transactional_id="nightly")
        outcome = SendOutcome(arguments, sent=9, acknowledged=3, aborted=2, transaction=ended)
        outcome.fail(DeliveryTimeout("too late", possibly_persisted=True))
        outcome.stopped = "a record failed"
        assert not await reported(monkeypatch, outcome)
        assert capsys.readouterr().err.splitlines() == [
            "3 records acknowledged in 0.00 s",
            "1 failed: DeliveryTimeout: too late",
            "Stopped: a record failed",
            ended.value,
        ]

    async def test_outcome_is_incomplete_when_the_commit_is_unknown(self, tmp_path: Path) -> None:
        arguments = plan_of(tmp_path / "in", transactional_id="nightly")
        assert not SendOutcome(
            arguments, sent=3, acknowledged=3, transaction=TransactionOutcome.UNKNOWN
        ).complete
        assert SendOutcome(arguments, sent=5, acknowledged=3, aborted=2).unknown == 0


async def test_json_report_is_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = SendOutcome(plan_of(tmp_path / "in", run="nightly"), sent=3, acknowledged=2)
    outcome.fail(DeliveryTimeout("too late", possibly_persisted=True))
    outcome.first_failure, outcome.stopped = "in, line 3", "a record failed"

    async def run(self: Sending) -> SendOutcome:
        return outcome

    monkeypatch.setattr(Sending, "run", run)
    assert not await send_report.send_and_report(outcome.arguments, as_json=True)
    told = capsys.readouterr()
    assert told.err == ""
    assert json.loads(told.out) == {
        "topic": "orders",
        "run": "nightly",
        "complete": False,
        "stopped": "a record failed",
        "sent": 3,
        "acknowledged": 2,
        "acknowledged_before": 0,
        "failed": 1,
        "failed_possibly_persisted": 1,
        "left_out": 0,
        "dead_letters": None,
        "without_outcome": 0,
        "errors": {"DeliveryTimeout: too late": 1},
        "first_failure": "in, line 3",
        "transaction": None,
        "acknowledged_up_to": None,
        "seconds": 0.0,
    }


def test_json_report_has_outcome_of_transaction(tmp_path: Path) -> None:
    arguments = plan_of(tmp_path / "in", transactional_id="nightly")
    for ended, told in ((TransactionOutcome.ABORTED, "aborted"), (TransactionOutcome.LEFT_OPEN, "left_open")):
        assert send_report.to_dict(SendOutcome(arguments, transaction=ended))["transaction"] == told


async def test_report_names_dead_letters_and_audit_effect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = replace(plan_of(tmp_path / "in", run="r"), dead_letters=DeadLetters(Path("dead.jsonl")))
    outcome = SendOutcome(arguments, sent=10, acknowledged=9, refused=1, refused_before=1, left_out=3)
    extend(outcome, 10)
    assert await reported(monkeypatch, outcome)
    _, left_out, hint, lost = capsys.readouterr().out.splitlines()
    assert left_out == "3 records left out: dead.jsonl has them"
    assert hint.endswith("--expect 10")
    assert lost == "The audit counts 1 record as lost, which the brokers refused."
    assert send_report.to_dict(outcome)["dead_letters"] == "dead.jsonl"


async def test_prefix_in_report_excludes_refused_records(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = replace(plan_of(tmp_path / "in"), dead_letters=DeadLetters())
    outcome = SendOutcome(
        arguments, sent=10, acknowledged=8, refused=2, refused_before=1, left_out=1, stopped="x"
    )
    extend(outcome, 5)
    assert not await reported(monkeypatch, outcome)
    told = capsys.readouterr().err.splitlines()
    assert told[1] == "1 record left out"
    assert told[-2:] == [
        "Acknowledged from the beginning to in, line 5: 4 records",
        "Also acknowledged, after that part: 4 records; continuing from there repeats them.",
    ]


LINES = 3_000


def shown(arguments: SendArguments, outcome: SendOutcome, width: int) -> str:
    """Return the line of *outcome* on a terminal."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with progress(console, arguments) as show:
        show(outcome)
    *_, last = [
        line for line in re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", file.getvalue()) if " of " in line
    ]
    return last.strip()


@pytest.mark.parametrize(
    ("width", "failed", "line"),
    [
        (100, 0, r"1.0 kB of 2.0 kB \(50 %\), 10 acknowledged, [\d,]+ records/s, \S+ left"),
        (100, 1, r"1.0 kB of 2.0 kB \(50 %\), 10 acknowledged, 1 failed, [\d,]+ records/s, \S+ left"),
        (60, 1, r"1.0 kB of 2.0 kB \(50 %\), 10 acknowledged, \S+ left"),
        (40, 0, r"1.0 kB of 2.0 kB \(50 %\), \S+ left"),
        (25, 0, r"1.0 kB of 2.0 kB \(50 %\)"),
        (140, 0, r"\S+ +1.0 kB of 2.0 kB \(50 %\), 10 acknowledged, [\d,]+ records/s, \S+ left"),
    ],
)
def test_line_has_the_figures_that_fit(width: int, failed: int, line: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(bytes(2_000))
    arguments = SendArguments(
        config=ProducerConfig(bootstrap_servers="a:1"), topic="orders", paths=[str(tmp_path / "in")]
    )
    outcome = SendOutcome(arguments, sent=20, acknowledged=10)
    for _ in range(failed):
        outcome.fail(DeliveryTimeout("late"))
    outcome.meter._stored = 1_000
    outcome.meter.passed(1_000)
    outcome.prefix.extend(bytes(1_000), 10)
    assert re.fullmatch(line, shown(arguments, outcome, width))


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 80, 130])
def test_files_have_a_total_and_the_time_left(columns: int, tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain.txt", tmp_path / "packed.txt.gz"
    content = "".join(f"{number}\n" for number in range(LINES)).encode()
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    total = f"{(len(content) + packed.stat().st_size) / 1000:.1f} kB"
    with ThreadedCluster(topics={"orders": 1}) as cluster:
        code, shown = run_on_terminal(
            *("send", "orders", str(plain), str(packed), "--rate", "4000", "-b", cluster.bootstrap_servers),
            columns=columns,
            outputs="err",
        )
    assert code == 0
    shares = [int(each) for each in re.findall(rf" of {total} \((\d+) %\)", shown)]
    assert shares == sorted(shares)
    assert len(set(shares) - {0, 100}) > 2
    assert re.search(r"\d:\d\d:\d\d left", shown)
    assert ("records/s" in shown) == (columns >= 80)


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}])
def test_standard_error_that_is_no_terminal_has_no_progress(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("a\n" * 100)
    with ThreadedCluster(topics={"orders": 1}) as cluster:
        sending = ("send", "orders", "in", "--rate", "200", "-b", cluster.bootstrap_servers)
        done = run(*sending, cwd=tmp_path, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "100 records acknowledged" in done.stdout
