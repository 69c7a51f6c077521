from __future__ import annotations

import pytest

from aioproducer.audit import Audit, AuditReport, PartitionAudit


def audited(*partitions: list[int | None], expect: int | None = None) -> AuditReport:
    """Audit logs that are given as lists of sequences; their offsets count from 100 on."""
    audit = Audit("nightly-7", expect=expect, order=True)
    for partition, log in enumerate(partitions):
        for offset, sequence in enumerate(log, 100):
            audit.add(partition, offset, sequence)
    return audit.report()


def test_records_that_are_there_once_and_in_order_are_fine() -> None:
    report = audited([0, 2, 5], [1, 3, 4], expect=6)
    assert report.ok
    assert report == AuditReport(
        run="nightly-7",
        expected=6,
        expected_was_told=True,
        lost=0,
        first_lost=(),
        order_required=True,
        partitions=(
            PartitionAudit(0, records=3, first_offset=100, last_offset=102),
            PartitionAudit(1, records=3, first_offset=100, last_offset=102),
        ),
    )


def test_what_is_in_no_partition_is_lost() -> None:
    report = audited([0, 4], [1, 3], expect=7)
    assert not report.ok
    assert (report.lost, report.first_lost) == (3, (2, 5, 6))


def test_of_many_lost_ones_the_first_twenty_are_named() -> None:
    report = audited([30], expect=1_000)
    assert (report.lost, report.first_lost) == (999, tuple(range(20)))


def test_without_a_number_to_expect_the_highest_sequence_says() -> None:
    report = audited([0, 5], [1])
    assert (report.expected, report.expected_was_told) == (6, False)
    assert (report.lost, report.first_lost) == (3, (2, 3, 4))


def test_a_copy_is_a_duplicate_where_it_comes_later_and_no_disorder() -> None:
    report = audited([0, 1, 2, 0, 1, 3], [4, 2, 5], expect=6)
    first, second = report.partitions
    assert (first.duplicated, first.duplicated_at, first.out_of_order) == (2, 103, 0)
    assert (second.duplicated, second.duplicated_at, second.out_of_order) == (1, 101, 0)
    assert (report.lost, report.duplicated, report.ok) == (0, 3, False)


def test_a_record_behind_a_higher_one_is_out_of_order() -> None:
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


def test_partitions_have_nothing_to_do_with_each_others_order() -> None:
    assert audited([3, 4, 5], [0, 1, 2], expect=6).ok


def test_a_copy_of_a_higher_partition_does_not_hide_what_is_behind_it() -> None:
    """The copy of 9 is no record of its own, so 5 is behind nothing higher."""
    report = audited([0, 1, 2, 3, 4, 9], [9, 5, 6, 7, 8], expect=10)
    assert (report.duplicated, report.out_of_order) == (1, 0)


@pytest.mark.parametrize("sequence", [None, -1, 3, 10**17])
def test_a_sequence_that_cannot_be_is_unexpected_and_nothing_else(sequence: int | None) -> None:
    report = audited([0, sequence, 1, sequence, 2], expect=3)
    (part,) = report.partitions
    assert (part.unexpected, part.unexpected_at, part.records) == (2, 101, 5)
    assert report.flaws == {"unexpected": 2}
    assert report.expected == 3


def test_nothing_at_all_is_fine_only_if_nothing_was_expected() -> None:
    assert audited(expect=0).ok
    assert not audited().ok
    assert audited(expect=2).lost == 2


def test_a_report_can_be_had_on_the_way() -> None:
    audit = Audit()
    audit.add(0, 7, 0)
    on_the_way = audit.report()
    audit.add(0, 9, 2)
    assert (on_the_way.records, on_the_way.lost) == (1, 0)
    assert (audit.report().records, audit.report().lost) == (2, 1)


@pytest.mark.parametrize("earlier", [(2, 5), (2, 4), (1, 9)])
def test_records_that_are_not_in_order_of_partition_and_offset_are_refused(earlier: tuple[int, int]) -> None:
    audit = Audit()
    audit.add(2, 5, 0)
    with pytest.raises(ValueError, match="behind partition 2, offset 5: an audit takes records in order"):
        audit.add(*earlier, 1)


def test_a_run_cannot_have_sent_less_than_nothing() -> None:
    with pytest.raises(ValueError, match="expect = -1"):
        Audit(expect=-1)


@pytest.mark.parametrize(
    ("logs", "doubled_only"),
    [
        ([[0, 1, 2, 1, 2]], True),  # keys, or a single partition: what is repeated comes behind
        ([[0, 1], [2, 3, 0]], True),
        ([[4, 5, 2, 3], [0, 1, 2, 3, 6]], True),  # what is repeated has gone to a lower partition
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
def test_copies_alone_are_a_finding_of_their_own(logs: list[list[int | None]], doubled_only: bool) -> None:
    report = audited(*logs)
    assert report.doubled_only == doubled_only
    assert report.to_dict()["doubled_only"] == doubled_only
