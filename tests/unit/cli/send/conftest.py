from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.cli.send import send_run
from tests.unit.cli.send.send_run_rig import LINES


@pytest.fixture
def small_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_run, "RECORDS_A_CALL", 30)


@pytest.fixture
def input_file(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.write_bytes(b"".join(line + b"\n" for line in LINES))
    return path
