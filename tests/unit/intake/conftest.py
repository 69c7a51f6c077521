from __future__ import annotations

import pytest

from aioproducer import clock
from aioproducer.intake import rows
from tests.unit.intake.intake_rig import NOW_MS


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (clock, rows):
        monkeypatch.setattr(module, "wall_ms", lambda: NOW_MS)
