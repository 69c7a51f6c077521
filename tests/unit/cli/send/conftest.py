from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.cli.send import run
from tests.unit.cli.send.run_rig import LINES


@pytest.fixture
def small_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "RECORDS_A_CALL", 30)


@pytest.fixture
def input_file(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.write_bytes(b"".join(line + b"\n" for line in LINES))
    return path
