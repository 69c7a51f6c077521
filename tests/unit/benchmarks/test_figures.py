from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.figures import Results, Run
from tests.unit.benchmarks.samples import results


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    results().save(path)
    assert Results.load(path) == results()


def test_run_is_loaded_from_the_json_of_a_process() -> None:
    run = Run.loads('{"sent": 3, "figures": {"cpu_us": 1.5}, "series": [[0, 1]]}')
    assert run == Run(sent=3, figures={"cpu_us": 1.5}, series=[(0.0, 1.0)])


@pytest.mark.parametrize("text", ["", "[]", "{}", "\udcff"])
def test_file_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "out.json"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ValueError, match=r"out\.json is not a file of results"):
        Results.load(path)


def test_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text('{"format": 0}')
    with pytest.raises(ValueError, match="has format 0 instead of 2"):
        Results.load(path)


@pytest.mark.parametrize("changed", ["value_bytes", "compression", "uvloop"])
def test_rows_that_were_changed_are_not_judged(changed: str) -> None:
    assert results().judged
    other = results()
    other.options[changed] = 1
    assert not other.judged


def test_failures_name_row_and_client() -> None:
    told = results().failures
    assert [each.split(": round")[0] for each in told] == [
        f"{tuning}: closed, aiokafka" for tuning in ("defaults", "best", "equal")
    ]
