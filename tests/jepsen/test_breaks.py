"""Each deliberate fault still applies to the present code, and ends with its block."""

from __future__ import annotations

import pytest

from aioproducer._core.transactions.producer_transactions import Transactions
from aioproducer._core.transactions.transaction_manager import TransactionManager
from tests.jepsen.breaks import BREAKS


@pytest.mark.parametrize("name", BREAKS)
def test_break_replaces_one_method_in_its_block(name: str) -> None:
    def methods() -> dict[tuple[type, str], object]:
        return {
            (kind, each): found
            for kind in (Transactions, TransactionManager)
            for each, found in vars(kind).items()
        }

    before = methods()
    with BREAKS[name][1]():
        assert sum(each is not before[where] for where, each in methods().items()) == 1
    assert methods() == before
