from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.send_file import COMMANDS, EVENTS, KCAT, Taken, run, told, write_events


def test_events_file_has_its_size_and_an_event_per_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = write_events(path, 2_000_000)
    found = path.read_bytes().splitlines()
    assert path.stat().st_size >= 2_000_000
    assert len(found) == lines == 2 * EVENTS
    assert len({*found}) == EVENTS
    assert all(json.loads(line)["customer"].startswith("customer-") for line in found[:100])


def test_each_command_names_the_file_the_topic_and_the_servers() -> None:
    for name, command in COMMANDS.items():
        assert {"{file}", "{topic}", "{servers}"} <= {*command}, name


def test_figures_of_a_command_are_those_of_its_process() -> None:
    taken = run([sys.executable, "-S", "-c", "import time; b = b'x' * 2**26; time.sleep(0.3)"])
    assert taken.seconds >= 0.3
    assert taken.cpu_s < taken.seconds
    assert 2**26 <= taken.rss_bytes < 2**27


def test_failed_command_is_reported_with_its_last_line() -> None:
    with pytest.raises(RuntimeError, match=r"failed: no such broker$"):
        run([sys.executable, "-S", "-c", "import sys; sys.exit('here goes\\nno such broker')"])


def test_ratios_are_computed_per_round() -> None:
    played = [
        {"send": Taken(20.0, 5.0, 2**20), KCAT: Taken(10.0, 4.0, 2**20)},
        {"send": Taken(40.0, 6.0, 2**22), KCAT: Taken(40.0, 4.0, 2**20)},
        {"send": Taken(10.0, 7.0, 2**21), KCAT: Taken(8.0, 4.0, 2**20)},
    ]
    assert told("send", played, 1_000 * 10**6) == (
        "send: 50 (25 to 100) MB/s, CPU 6.0 (5.0 to 7.0) s per GB, at most 4 MiB, 0.80 (0.50 to 1.00) of kcat's rate"
    )
    assert "kcat's" not in told(KCAT, played, 10**9)
    assert "kcat's" not in told("send", [{"send": Taken(20.0, 5.0, 2**20)}], 10**9)
