from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from aioproducer.audit import (
    LANE_HEADER,
    PIECE_BITS,
    RUN_HEADER,
    SEQUENCE_HEADER,
    Audit,
    AuditReport,
    PartitionAudit,
    Sequences,
    belongs_to,
    lane_of,
    sequence_of,
    stamp,
)
from tests.cases import for_each


def audited(*partitions: list[int | None], expect: int | None = None) -> AuditReport:
    """Audit logs that are given as lists of sequences; their offsets count from 100 on."""
    audit = Audit("nightly-7", expect=expect, order=True)
    for partition, log in enumerate(partitions):
        for offset, sequence in enumerate(log, 100):
            audit.add(partition, offset, sequence)
    return audit.report()


def test_audit_finds_no_flaw_in_an_ordered_run() -> None:
    report = audited([0, 2, 5], [1, 3, 4], expect=6)
    assert report.ok
    assert report == AuditReport(
        run="nightly-7",
        expected=6,
        expect_was_given=True,
        lost=0,
        first_lost=(),
        order_required=True,
        partitions=(
            PartitionAudit(0, records=3, first_offset=100, last_offset=102),
            PartitionAudit(1, records=3, first_offset=100, last_offset=102),
        ),
    )


def test_missing_sequences_are_lost() -> None:
    report = audited([0, 4], [1, 3], expect=7)
    assert not report.ok
    assert (report.lost, report.first_lost) == (3, (2, 5, 6))


def test_audit_names_the_first_twenty_lost_sequences() -> None:
    report = audited([30], expect=1_000)
    assert (report.lost, report.first_lost) == (999, tuple(range(20)))


def test_expected_defaults_to_the_highest_sequence() -> None:
    report = audited([0, 5], [1])
    assert (report.expected, report.expect_was_given) == (6, False)
    assert (report.lost, report.first_lost) == (3, (2, 3, 4))


def test_later_copy_is_a_duplicate_and_not_out_of_order() -> None:
    report = audited([0, 1, 2, 0, 1, 3], [4, 2, 5], expect=6)
    first, second = report.partitions
    assert (first.duplicated, first.duplicated_at, first.out_of_order) == (2, 103, 0)
    assert (second.duplicated, second.duplicated_at, second.out_of_order) == (1, 101, 0)
    assert (report.lost, report.duplicated, report.ok) == (0, 3, False)


def test_record_behind_a_higher_sequence_is_out_of_order() -> None:
    report = audited([0, 3, 1, 2, 4], [5, 6], expect=7)
    first, second = report.partitions
    assert (first.out_of_order, first.out_of_order_at) == (2, 102)
    assert (second.out_of_order, second.out_of_order_at) == (0, None)
    assert not report.ok


def test_order_counts_within_lane_of_partition() -> None:
    audit = Audit(order=True)
    for offset, (lane, sequence) in enumerate([(b"a", 5), (b"b", 0), (b"a", 6), (b"b", 1), (None, 2)]):
        audit.add(0, offset, sequence, lane)
    audit.add(1, 0, 3, b"a")
    assert audit.report().out_of_order == 0
    audit.add(1, 1, 7, b"a")
    audit.add(1, 2, 4, b"a")
    (_, part) = audit.report().partitions
    assert (part.out_of_order, part.out_of_order_at, audit.report().ok) == (1, 2, False)


def test_order_is_no_flaw_by_default() -> None:
    audit = Audit(expect=2)
    audit.add(0, 0, 1)
    audit.add(0, 1, 0)
    assert (audit.report().out_of_order, audit.report().ok) == (1, True)


def test_order_is_checked_per_partition() -> None:
    assert audited([3, 4, 5], [0, 1, 2], expect=6).ok


def test_copy_does_not_hide_records_behind_it() -> None:
    """The copy of 9 is no record of its own, so 5 is behind nothing higher."""
    report = audited([0, 1, 2, 3, 4, 9], [9, 5, 6, 7, 8], expect=10)
    assert (report.duplicated, report.out_of_order) == (1, 0)


@for_each("sequence", [None, -1, 3, 10**17])
def test_impossible_sequence_counts_as_unexpected_only(sequence: int | None) -> None:
    report = audited([0, sequence, 1, sequence, 2], expect=3)
    (part,) = report.partitions
    assert (part.unexpected, part.unexpected_at, part.records) == (2, 101, 5)
    assert report.flaws == {"unexpected": 2}
    assert report.expected == 3


def test_empty_run_is_ok_only_when_expected() -> None:
    assert audited(expect=0).ok
    assert not audited().ok
    assert audited(expect=2).lost == 2


def test_report_is_available_before_the_end() -> None:
    audit = Audit()
    audit.add(0, 7, 0)
    on_the_way = audit.report()
    audit.add(0, 9, 2)
    assert (on_the_way.records, on_the_way.lost) == (1, 0)
    assert (audit.report().records, audit.report().lost) == (2, 1)


@pytest.mark.parametrize("earlier", [(2, 5), (2, 4), (1, 9)])
def test_audit_refuses_records_in_another_order(earlier: tuple[int, int]) -> None:
    audit = Audit()
    audit.add(2, 5, 0)
    with pytest.raises(ValueError, match="behind partition 2, offset 5: an audit takes records in order"):
        audit.add(*earlier, 1)


def test_negative_expect_is_refused() -> None:
    with pytest.raises(ValueError, match="expect = -1"):
        Audit(expect=-1)


@for_each(
    ("logs", "doubled_only"),
    [
        (
            [[0, 1, 2, 1, 2]],
            True,
        ),  # keys or a single partition: repeated records follow in the same partition
        ([[0, 1], [2, 3, 0]], True),
        ([[4, 5, 2, 3], [0, 1, 2, 3, 6]], True),  # repeated records are in a lower partition
        ([[4, 2, 3], [0, 2, 5], [1, 3]], True),
        ([[0, 1, 2]], False),  # nothing is wrong
        ([[0, 2, 1], [3, 0]], False),  # 1 is late, and not there again
        ([[1, 0, 0]], False),  # there again, and late again
        ([[1, 0], [2, 0]], False),
        ([[3, 0, 1, 2], [1, 0, 2]], False),  # 0 is behind 1 in either
        ([[5, 3], [3, 2, 0, 1, 4]], False),  # if 3 were the record there, 2 would be behind it
        ([[0, 0, 2]], False),  # 1 is lost
        ([[0, 0, None]], False),
    ],
)
def test_doubled_only_is_true_when_copies_are_the_only_flaw(
    logs: list[list[int | None]], doubled_only: bool
) -> None:
    report = audited(*logs)
    assert report.doubled_only == doubled_only
    assert report.to_dict()["doubled_only"] == doubled_only


def test_stamp_returns_two_headers_in_utf_8() -> None:
    assert stamp("nächtlich", 17) == ((RUN_HEADER, "nächtlich".encode()), (SEQUENCE_HEADER, b"17"))
    assert (RUN_HEADER, SEQUENCE_HEADER) == ("aioproducer-run", "aioproducer-seq")


def test_lane_is_a_third_header() -> None:
    assert stamp("r", 1, "täsk 3") == (*stamp("r", 1), (LANE_HEADER, "täsk 3".encode()))
    assert lane_of(stamp("r", 1, "täsk 3")) == "täsk 3".encode()
    assert lane_of(stamp("r", 1)) is None
    assert LANE_HEADER == "aioproducer-lane"


def test_stamp_is_read_among_other_headers() -> None:
    headers = (("trace", b"1f"), *stamp("nächtlich", 17), ("trace", None))
    assert belongs_to("nächtlich", headers)
    assert sequence_of(headers) == 17


@for_each("headers", [(), stamp("nightly-70", 1), ((RUN_HEADER, None),), (("run", b"nightly-7"),)])
def test_record_of_another_run_does_not_belong_to_the_run(
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    assert not belongs_to("nightly-7", headers)


@for_each(
    ("value", "sequence"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"9" * 18, 10**18 - 1),
        (b"9" * 19, None),
        (b"", None),
        (None, None),
        (b"-1", None),
        (b"+1", None),
        (b"1.0", None),
        (b" 1", None),
        (b"1\n", None),
        (b"1_0", None),
        ("\N{ARABIC-INDIC DIGIT ONE}".encode(), None),
        (b"\xff", None),
    ],
)
def test_sequence_consists_of_digits(value: bytes | None, sequence: int | None) -> None:
    assert sequence_of([(SEQUENCE_HEADER, value)]) == sequence


def test_sequence_is_none_without_its_header() -> None:
    assert sequence_of([("seq", b"1")]) is None


def test_first_header_of_a_name_wins() -> None:
    headers = [*stamp("a", 1), *stamp("b", 2)]
    assert belongs_to("a", headers)
    assert not belongs_to("b", headers)
    assert sequence_of(headers) == 1


@pytest.mark.parametrize(("run", "sequence"), [("", 0), ("r", -1), ("r", 10**18)])
def test_stamp_refuses_invalid_values(run: str, sequence: int) -> None:
    with pytest.raises(ValueError, match="a run has a name and sequences from 0 up to 18 digits"):
        stamp(run, sequence)


@for_each(("run", "sequence"), [(1, 1), ("r", "1"), ("r", 1.0), (b"r", 1)])
def test_stamp_refuses_other_types(run: Any, sequence: Any) -> None:
    with pytest.raises(TypeError, match="run must be str and sequence int, not "):
        stamp(run, sequence)


FINE = AuditReport(
    run="nightly-7",
    expected=2_000,
    expect_was_given=True,
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


def test_totals_cover_all_partitions() -> None:
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


@for_each(
    "flaw",
    [
        {"lost": 1},
        {"partitions": (PartitionAudit(0, 1, 0, 0, duplicated=1),)},
        {"partitions": (PartitionAudit(0, 1, 0, 0, out_of_order=1),)},
        {"partitions": (PartitionAudit(0, 1, 0, 0, unexpected=1),)},
    ],
)
def test_report_is_not_ok_when_it_has_a_flaw(flaw: dict[str, object]) -> None:
    assert not replace(FINE, order_required=True, **flaw).ok  # type: ignore[arg-type]


def test_report_text_lists_the_flaws() -> None:
    assert str(FINE) == "2,000 records of run nightly-7, 2,000 expected: each once, in order"
    assert (
        str(replace(FLAWED, run=None))
        == "1,999 records, 2,000 expected: 3 lost, 3 duplicated, 4 out of order"
    )
    nothing = replace(FINE, run=None, expected=0, expect_was_given=False, partitions=())
    assert str(nothing) == "0 records, 0 expected: no record found"


def test_dict_of_report_has_every_field_and_is_json() -> None:
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
        "expect_was_given": True,
        "records": 1_999,
        "lost": 3,
        "first_lost": [4, 5, 9],
        "duplicated": 3,
        "out_of_order": 4,
        "unexpected": 0,
    }


def of(*members: int) -> Sequences:
    sequences = Sequences()
    for member in members:
        sequences.add(member)
    return sequences


def test_sequences_report_a_new_member_once() -> None:
    sequences = Sequences()
    assert [sequences.add(each) for each in (0, 7, 8, 0, 8, PIECE_BITS, PIECE_BITS)] == [
        *(True, True, True, False, False, True, False)
    ]
    assert len(sequences) == 4


def test_missing_sequences_are_yielded_in_order() -> None:
    sequences = of(3, 0, 5)
    assert list(sequences.missing(8)) == [1, 2, 4, 6, 7]
    assert list(sequences.missing(4)) == [1, 2]
    assert list(sequences.missing(0)) == []


def test_gaps_are_found_at_piece_boundaries() -> None:
    there = set(range(3 * PIECE_BITS)) - {PIECE_BITS - 1, PIECE_BITS, 3 * PIECE_BITS - 1}
    assert list(of(*there).missing(3 * PIECE_BITS)) == [PIECE_BITS - 1, PIECE_BITS, 3 * PIECE_BITS - 1]
    assert list(of(*range(2 * PIECE_BITS)).missing(2 * PIECE_BITS)) == []


def test_distant_sequence_is_cheap() -> None:
    tracemalloc.start()
    try:
        sequences = of(0, 10**17)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000
    assert list(islice(sequences.missing(10**17), 2)) == [1, 2]


def test_sequences_need_one_bit_per_member() -> None:
    tracemalloc.start()
    try:
        sequences = of(*range(100 * PIECE_BITS))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(sequences) == 100 * PIECE_BITS
    assert taken < 2 * 100 * PIECE_BITS / 8


def test_sequences_support_in() -> None:
    sequences = Sequences()
    _ = sequences.add(5_000)
    assert 5_000 in sequences
    assert [each in sequences for each in (0, 4_999, 5_001, 100_000)] == [False] * 4
