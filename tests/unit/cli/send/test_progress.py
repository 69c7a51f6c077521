from __future__ import annotations

import gzip
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from aioproducer.cli.send.plan import Outcome, Plan
from aioproducer.cli.send.progress import progress
from aioproducer.config import ProducerConfig
from aioproducer.errors import DeliveryTimeout
from aioproducer.testing import ThreadedCluster
from tests.unit.cli.entry_point import run, run_on_terminal

LINES = 3_000


def shown(plan: Plan, outcome: Outcome, width: int) -> str:
    """Return the line of *outcome* on a terminal."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with progress(console, plan) as show:
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
    plan = Plan(config=ProducerConfig(bootstrap_servers="a:1"), topic="orders", paths=[str(tmp_path / "in")])
    outcome = Outcome(plan, sent=20, acknowledged=10)
    for _ in range(failed):
        outcome.fail(DeliveryTimeout("late"))
    outcome.meter._stored = 1_000
    outcome.meter.passed(1_000)
    outcome.prefix.extend(bytes(1_000), 10)
    assert re.fullmatch(line, shown(plan, outcome, width))


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
