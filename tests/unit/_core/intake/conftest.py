from __future__ import annotations

import pytest

from aioproducer._core import clock
from aioproducer._core.intake import rows
from tests.unit._core.intake.intake_rig import NOW_MS


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (clock, rows):
        monkeypatch.setattr(module, "wall_ms", lambda: NOW_MS)
