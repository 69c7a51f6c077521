"""An audit finds the flaws that a check of all records at once finds."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

from hypothesis import given, strategies as st

from aioproducer.audit import Audit

LOGS = st.lists(st.lists(st.none() | st.integers(-1, 12), max_size=12), max_size=4)


LANES = st.lists(st.sampled_from([None, b"a", b"b"]), min_size=12, max_size=12)


@given(LOGS, st.none() | st.integers(0, 14), LANES)
def test_audit_finds_losses_copies_and_disorder(
    logs: list[list[int | None]], expect: int | None, lanes: list[bytes | None]
) -> None:
    """*lanes* are those of the offsets."""
    audit = Audit(expect=expect)
    expected_ones: list[tuple[int, int, int]] = []
    unexpected = 0
    for partition, log in enumerate(logs):
        for offset, sequence in enumerate(log):
            audit.add(partition, offset, sequence, lanes[offset])
            if sequence is None or sequence < 0 or (expect is not None and sequence >= expect):
                unexpected += 1
            else:
                expected_ones.append((partition, offset, sequence))
    report = audit.report()

    sequences = {sequence for _, _, sequence in expected_ones}
    expected = max(sequences, default=-1) + 1 if expect is None else expect
    firsts = [min(each for each in expected_ones if each[2] == sequence) for sequence in sequences]
    late = [
        (partition, offset)
        for partition, offset, sequence in firsts
        if any(
            where == partition and at < offset and lanes[at] == lanes[offset] and other > sequence
            for where, at, other in firsts
        )
    ]
    assert report.expected == expected
    assert report.first_lost == tuple(sorted(set(range(expected)) - sequences))
    assert report.lost == len(report.first_lost)
    assert report.duplicated == len(expected_ones) - len(firsts)
    assert report.out_of_order == len(late)
    assert report.unexpected == unexpected
    assert report.records == sum(map(len, logs))
    for part in report.partitions:
        assert part.out_of_order_at == min(
            (at for where, at in late if where == part.partition), default=None
        )


@given(LOGS, LANES)
def test_doubled_log_is_in_order_without_its_copies(
    logs: list[list[int | None]], lanes: list[bytes | None]
) -> None:
    """There is a choice of one copy of each record, so that these are in order in every lane of a partition."""
    audit = Audit(order=True)
    copies: dict[int, list[tuple[int, int]]] = {}
    for partition, log in enumerate(logs):
        for offset, sequence in enumerate(log):
            audit.add(partition, offset, sequence, lanes[offset])
            copies.setdefault(-1 if sequence is None else sequence, []).append((partition, offset))
    if not audit.report().doubled_only or prod(map(len, copies.values())) > 4_096:
        return
    choices = (
        sorted(
            (where[0], lanes[where[1]] or b"", where[1], sequence)
            for sequence, where in zip(copies, choice, strict=True)
        )
        for choice in product(*copies.values())
    )
    assert any(
        all(former[3] < latter[3] for former, latter in pairwise(choice) if former[:2] == latter[:2])
        for choice in choices
    )
