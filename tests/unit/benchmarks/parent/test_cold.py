from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.parent import cold

COMPILED_S = 0.5

CHILD = f"""
import importlib.util, os
compiled = os.path.exists(importlib.util.find_spec("imported").cached)
import imported
print({COMPILED_S} if compiled else 100.0)
"""


class FakeTopics:
    servers = "nowhere:9092"

    def __init__(self) -> None:
        self.checked: list[int] = []

    @contextmanager
    def fresh(self, name: str, _partitions: int) -> Iterator[str]:
        yield name

    def check(self, _topic: str, _partitions: int, sent: int) -> None:
        self.checked.append(sent)


def test_packages_are_compiled_before_the_clock_runs_wherever_this_is_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "imported.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(cold, "CHILD", "child")
    topics: Any = FakeTopics()
    run = cold.measure("anybody", topics, "cold")
    assert run.figures["import_ms"] == COMPILED_S * 1000
    assert topics.checked == [run.sent] == [cold.TIMES + 1]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["child.py", "imported.py"]
