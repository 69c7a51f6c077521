from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.parent.process import ChildFailedError, answer_of, last_line


def test_the_answer_is_the_last_line() -> None:
    assert answer_of("platform", ["terse"]).count("-") >= 2


def test_clients_are_not_measured_in_debug_mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text("import os; print('PYTHONASYNCIODEBUG' in os.environ)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    assert answer_of("told", []) == "False"


def test_a_process_that_fails_tells_its_error() -> None:
    with pytest.raises(ChildFailedError, match=r"ended with 1: .*No module named benchmarks\.nothing"):
        answer_of("benchmarks.nothing", [])


def test_of_a_traceback_the_error_is_told() -> None:
    assert last_line("Traceback:\n  File x\nValueError: no\n\n") == "ValueError: no"
    assert last_line(" \n") == "it said nothing"
