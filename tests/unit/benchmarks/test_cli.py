from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks import cli
from benchmarks.figures import Played, Results, Run
from benchmarks.micro.baseline import Baseline
from benchmarks.micro.clock import Timed
from benchmarks.parent.session import NO_TLS, Asked
from benchmarks.settings import Work
from benchmarks.spark import session
from benchmarks.table import ROWS
from tests.unit.benchmarks.samples import results

Call = Callable[..., Result]


@pytest.fixture
def call() -> Call:
    return lambda *arguments: CliRunner().invoke(cli.program, [str(each) for each in arguments])


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Asked, Path | None]]:
    """What would have been measured."""
    asked: list[tuple[Asked, Path | None]] = []
    monkeypatch.setattr(cli, "_measure", lambda what, path: asked.append((what, path)))
    return asked


def test_by_default_the_whole_table_is_run(call: Call, measured: list[tuple[Asked, Path | None]]) -> None:
    assert call("run").exit_code == 0
    [(asked, path)] = measured
    assert asked.rows == tuple(ROWS)
    assert path is None


def test_the_short_session_has_some_rows_and_no_defaults(
    call: Call, measured: list[tuple[Asked, Path | None]]
) -> None:
    call("quick", "--json", "out.json", "--uvloop")
    [(asked, path)] = measured
    assert 0 < len(asked.rows) < len(ROWS) / 2
    assert (asked.defaults_rounds, asked.uvloop, path) == (0, True, Path("out.json"))


def test_work_is_chosen_by_row_pattern_or_kind(call: Call, measured: list[tuple[Asked, Path | None]]) -> None:
    chosen = "bulk-keys,closed,value-*,scale"
    call("run", "--work", chosen, "--clients", "aioproducer,jvm", "--value-bytes", 500)
    [(asked, _)] = measured
    assert asked.rows[:4] == ("bulk-keys", "closed", "value-1k", "value-10k")
    assert {ROWS[name].work for name in asked.rows[4:]} == {Work.SCALE}
    assert asked.clients == ("aioproducer", "jvm")
    assert asked.value_bytes == 500


def test_scale_alone_needs_no_kafka(call: Call, measured: list[tuple[Asked, Path | None]]) -> None:
    call("scale", "--quick")
    [(asked, _)] = measured
    assert {ROWS[name].work for name in asked.rows} == {Work.SCALE}
    assert asked.bootstrap_servers is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--work", "nonsense"), "no work is called 'nonsense'"),
        (("run", "--clients", "pykafka"), "no client is called 'pykafka'"),
        (("run", "--work", "closed", "--clients", "jvm"), "none of these clients does any of this work"),
    ],
)
def test_what_is_misunderstood_is_told(call: Call, arguments: tuple[str, ...], words: str) -> None:
    told = call(*arguments)
    assert told.exit_code == 2
    assert words in told.output


def test_a_report_is_made_from_a_file_alone(call: Call, tmp_path: Path) -> None:
    few = results()
    few.rows = {}
    few.save(tmp_path / "out.json")
    told = call("report", tmp_path / "out.json", "--out", tmp_path / "pages")
    assert told.exit_code == 0
    assert (tmp_path / "pages" / "index.html").exists()


def test_a_file_that_is_no_results_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("[]")
    told = call("report", tmp_path / "out.json")
    assert told.exit_code == 1
    assert "out.json is not a file of results" in told.output


def test_results_of_another_table_are_no_report(call: Call, tmp_path: Path) -> None:
    few = results()
    few.rows = {"micro-batch": few.rows["closed"]}
    few.save(tmp_path / "spark.json")
    told = call("report", tmp_path / "spark.json")
    assert told.exit_code == 1
    assert "spark.json: the pages have no place for micro-batch" in told.output


@pytest.mark.parametrize(("failures", "exit_code"), [({}, 0), ({"kafka": ["it broke"]}, 1)])
def test_on_spark_what_is_measured_is_shown_and_kept(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    failures: dict[str, list[str]],
    exit_code: int,
) -> None:
    def play(asked: session.Asked, servers: str, follow: object) -> dict[str, Played]:
        assert (asked.rows, asked.rounds, servers) == (5, 2, "a:9092")
        runs: list[Run | None] = [Run(sent=5, figures={"records_s": 123_456.0})]
        return {"batch": Played(runs={"aioproducer": runs}, failures=failures)}

    monkeypatch.setattr(cli, "broker", lambda _: nullcontext(("a:9092", NO_TLS)))
    monkeypatch.setattr(session, "play", play)
    told = call("spark", "--rows", 5, "--rounds", 2, "--json", tmp_path / "out.json")
    assert told.exit_code == exit_code
    assert "123,456" in told.output
    assert Results.load(tmp_path / "out.json").options == {"rows": 5, "rounds": 2}


@pytest.mark.parametrize(("before", "exit_code"), [(1.0, 0), (0.5, 1)])
def test_a_check_fails_if_something_is_slower(
    call: Call, monkeypatch: pytest.MonkeyPatch, before: float, exit_code: int
) -> None:
    monkeypatch.setattr(cli, "measure", lambda *_, **__: {"encode": Timed(1.0, 3.0)})
    monkeypatch.setattr("benchmarks.micro.units.units", lambda _: {})
    monkeypatch.setattr(Baseline, "load", classmethod(lambda _: Baseline("3.11", {"encode": before})))
    told = call("check")
    assert told.exit_code == exit_code
    assert ("slower: encode" in told.output) == bool(exit_code)
