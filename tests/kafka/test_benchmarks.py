"""A short run of the benchmark suite on a real broker, without a check of speeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from benchmarks import send_file
from benchmarks.cli import program
from benchmarks.figures import Results
from benchmarks.parent import session
from benchmarks.parent.topics import MissingRecordsError
from benchmarks.settings import Tuning, Work
from benchmarks.sweep.grid import points
from benchmarks.sweep.winners import Winners
from benchmarks.table import ROWS
from tests.kafka.apache.broker import ApacheKafka


@pytest.fixture(autouse=True)
def short_warm_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    short = tuple((row, client, 0.05) for row, client, _ in session.WARM_UPS)
    monkeypatch.setattr(session, "WARM_UPS", short)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_benchmark_runs_every_client_and_leaves_no_topic(kafka: ApacheKafka, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    small = ["--seconds", "0.05", "--rounds", "1", "--tables", "best", "--json", str(path)]
    where = ["--bootstrap-servers", kafka.bootstrap_servers, "--work", "fire,bulk"]
    done = CliRunner().invoke(program, ["run", *where, *small, "--value-bytes", "1000"])
    assert done.exit_code == 0, done.output
    results = Results.load(path)
    runs = {
        client: runs
        for played in results.tables[Tuning.BEST].values()
        for client, runs in played.runs.items()
    }
    assert set(runs) == {client for row in ("fire", "bulk") for client in ROWS[row].clients}
    for run in (run for of_client in runs.values() for run in of_client):
        assert run is not None
        assert run.figures["records_s"] > 0
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    assert not [name for name in admin.list_topics().topics if name.startswith("aioproducer-bench")]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_sweep_tries_every_set_of_options_and_keeps_results(kafka: ApacheKafka, tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    Winners(rows={"lone": {"aioproducer": [{"options": {}, "p50_ms": 1.0}]}}).save(path)
    small = ["--seconds", "0.05", "--rounds", "1", "--out", str(path)]
    where = ["--bootstrap-servers", kafka.bootstrap_servers, "--work", "lone", "--clients", "aiokafka"]
    done = CliRunner().invoke(program, ["sweep", *where, *small])
    assert done.exit_code == 0, done.output
    swept = Winners.load(path).rows["lone"]
    assert list(swept) == ["aioproducer", "aiokafka"]
    tried = [each["options"] for each in swept["aiokafka"]]
    assert all(options in tried for options in points("aiokafka", Work.LONE))
    times = [each["p50_ms"] for each in swept["aiokafka"]]
    assert times == sorted(times)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_file_benchmark_runs_commands_and_detects_lost_records(
    kafka: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--bootstrap-servers", kafka.bootstrap_servers, "--megabytes", "1", "--rounds", "1"]
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(send_file.main, small)
    assert done.exit_code == 0, done.output
    first, left_out, *told = done.output.splitlines()
    assert (first, left_out) == ("2 MB, 10,000 lines, 6 partitions", "kcat is not on the PATH; skipped")
    assert [line.split(":")[0] for line in told] == [
        name for name in send_file.COMMANDS if name != send_file.KCAT
    ]
    stand_in = tmp_path / send_file.KCAT
    stand_in.write_text("#!/bin/sh\n")
    stand_in.chmod(0o700)
    failed = CliRunner().invoke(send_file.main, small)
    assert isinstance(failed.exception, MissingRecordsError), failed.output
