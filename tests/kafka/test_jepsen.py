"""A short run of the workload of tests/jepsen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jepsen import __main__ as jepsen
from tests.jepsen.checker import check


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_transactions_under_faults_have_no_anomaly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jepsen, "HISTORIES", tmp_path)
    _, history = jepsen.run("aioproducer", version=1, seed="short", minutes=0.2)
    assert any(each.is_committed for each in history.transactions.values())
    assert history.ends
    assert not {kind: found for kind, found in check(history).items() if found}
