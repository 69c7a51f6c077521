from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aioproducer.audit import AuditReport, PartitionAudit

FINE = AuditReport(
    run="nightly-7",
    expected=2_000,
    expected_was_told=True,
    lost=0,
    first_lost=(),
    partitions=(PartitionAudit(0, 1_500, 0, 1_499), PartitionAudit(3, 500, 7, 900)),
)
FLAWED = replace(
    FINE,
    lost=3,
    first_lost=(4, 5, 9),
    order_required=True,
    partitions=(
        PartitionAudit(0, 1_499, 0, 1_499, duplicated=2, duplicated_at=5),
        PartitionAudit(3, 500, 7, 900, duplicated=1, duplicated_at=8, out_of_order=4, out_of_order_at=9),
    ),
)


def test_totals_are_of_all_partitions() -> None:
    assert (FLAWED.records, FLAWED.duplicated, FLAWED.out_of_order, FLAWED.unexpected) == (1_999, 3, 4, 0)
    assert FLAWED.flaws == {"lost": 3, "duplicated": 3, "out of order": 4}
    assert (FINE.flaws, FINE.ok, FLAWED.ok) == ({}, True, False)


def test_order_is_a_flaw_only_when_required() -> None:
    late = replace(FINE, partitions=(PartitionAudit(0, 2_000, 0, 1_999, out_of_order=1, out_of_order_at=5),))
    assert (late.out_of_order, late.flaws, late.ok) == (1, {}, True)
    assert str(late) == "2,000 records of run nightly-7, 2,000 expected: each once"
    required = replace(late, order_required=True)
    assert (required.flaws, required.ok, required.doubled_only) == ({"out of order": 1}, False, False)
    assert required.to_dict()["order_required"] is True
    doubled = replace(late, partitions=(PartitionAudit(0, 2_001, 0, 2_000, duplicated=1, out_of_order=1),))
    assert (doubled.doubled_only, replace(doubled, order_required=True).doubled_only) == (True, False)


@pytest.mark.parametrize(
    "flaw",
    [
        {"lost": 1},
        {"partitions": (PartitionAudit(0, 1, 0, 0, duplicated=1),)},
        {"partitions": (PartitionAudit(0, 1, 0, 0, out_of_order=1),)},
        {"partitions": (PartitionAudit(0, 1, 0, 0, unexpected=1),)},
    ],
)
def test_any_flaw_is_enough(flaw: dict[str, object]) -> None:
    assert not replace(FINE, order_required=True, **flaw).ok  # type: ignore[arg-type]


def test_it_says_in_a_line_what_is_wrong() -> None:
    assert str(FINE) == "2,000 records of run nightly-7, 2,000 expected: each once, in order"
    assert (
        str(replace(FLAWED, run=None))
        == "1,999 records, 2,000 expected: 3 lost, 3 duplicated, 4 out of order"
    )
    nothing = replace(FINE, run=None, expected=0, expected_was_told=False, partitions=())
    assert str(nothing) == "0 records, 0 expected: nothing was found"


def test_a_dict_of_it_has_everything_and_fits_into_json() -> None:
    told = json.loads(json.dumps(FLAWED.to_dict()))
    assert told.pop("partitions")[1] == {
        "partition": 3,
        "records": 500,
        "first_offset": 7,
        "last_offset": 900,
        "duplicated": 1,
        "duplicated_at": 8,
        "out_of_order": 4,
        "out_of_order_at": 9,
        "unexpected": 0,
        "unexpected_at": None,
    }
    assert told == {
        "run": "nightly-7",
        "ok": False,
        "doubled_only": False,
        "order_required": True,
        "expected": 2_000,
        "expected_was_told": True,
        "records": 1_999,
        "lost": 3,
        "first_lost": [4, 5, 9],
        "duplicated": 3,
        "out_of_order": 4,
        "unexpected": 0,
    }
