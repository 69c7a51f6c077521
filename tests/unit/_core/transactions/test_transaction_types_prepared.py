"""The text form of a prepared transaction, and refused texts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from aioproducer import PreparedTransaction
from tests.cases import for_each

PREPARED = PreparedTransaction("orders-1", 4711, 3, 2, 1_700_000_000_000, 60_000)
TEXT = (
    '{"v": 1, "id": "orders-1", "producer_id": 4711, "epoch": 3, "transaction_version": 2,'
    ' "began_at_ms": 1700000000000, "timeout_ms": 60000}'
)


def text(**changes: Any) -> str:
    return json.dumps({**json.loads(TEXT), **changes})


def test_text_of_this_version_is_stable() -> None:
    """One release writes the text and the next release reads it."""
    assert str(PREPARED) == TEXT
    assert PreparedTransaction.parse(TEXT) == PREPARED


@for_each(
    ("given", "message"),
    [
        ("", "'' is not JSON"),
        ("orders-1", "'orders-1' is not JSON"),
        ("x" * 100, f"'{'x' * 80}' is not JSON"),
        ("[]", "its format is None, expected 1"),
        ("null", "its format is None, expected 1"),
        ("{}", "its format is None, expected 1"),
        (text(v=2), "its format is 2, expected 1"),
        (text(v="1"), "its format is '1', expected 1"),
        ('{"v": 1}', "'id' is None, 'producer_id' is None, 'epoch' is None"),
        (text(id=5), ": 'id' is 5$"),
        (text(producer_id="5"), "'producer_id' is '5'$"),
        (text(epoch=True), "'epoch' is True$"),
        (text(epoch=1.5), "'epoch' is 1.5$"),
        (text(transaction_version=None), "'transaction_version' is None$"),
        (text(began_at_ms=[]), r"'began_at_ms' is \[\]$"),
        (text(timeout_ms={}), r"'timeout_ms' is \{\}$"),
        (text(id=""), "'id' is ''$"),
        (text(producer_id=-1), "'producer_id' is -1$"),
        (text(producer_id=2**63), "'producer_id' is 9223372036854775808$"),
        (text(epoch=-1), "'epoch' is -1$"),
        (text(epoch=32768), "'epoch' is 32768$"),
        (text(transaction_version=0), "'transaction_version' is 0$"),
        (text(began_at_ms=-1), "'began_at_ms' is -1$"),
        (text(began_at_ms=10**15), "'began_at_ms' is 1000000000000000$"),
        (text(timeout_ms=-2), "'timeout_ms' is -2$"),
        (text(timeout_ms=2**31), "'timeout_ms' is 2147483648$"),
    ],
)
def test_invalid_text_is_refused_with_a_reason(given: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^not a prepared transaction.*{message}"):
        PreparedTransaction.parse(given)


def test_unknown_fields_are_ignored() -> None:
    assert PreparedTransaction.parse(text(more="of it")) == PREPARED


def test_deadline_is_that_of_the_coordinator() -> None:
    assert PREPARED.deadline == datetime(2023, 11, 14, 22, 14, 20, tzinfo=UTC)


def test_largest_numbers_have_a_deadline() -> None:
    largest = text(began_at_ms=253_000_000_000_000 - 1, timeout_ms=2**31 - 1)
    assert PreparedTransaction.parse(largest).deadline is not None


@pytest.mark.parametrize(("timeout_ms", "has_one"), [(-1, False), (0, True), (1, True)])
def test_two_phase_commit_has_no_deadline(timeout_ms: int, has_one: bool) -> None:
    assert (PREPARED._replace(timeout_ms=timeout_ms).deadline is not None) is has_one
