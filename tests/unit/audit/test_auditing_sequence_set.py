from __future__ import annotations

import tracemalloc
from itertools import islice

from aioproducer.audit.auditing import PIECE_BITS, Sequences


def of(*members: int) -> Sequences:
    sequences = Sequences()
    for member in members:
        sequences.add(member)
    return sequences


def test_a_sequence_is_new_once() -> None:
    sequences = Sequences()
    assert [sequences.add(each) for each in (0, 7, 8, 0, 8, PIECE_BITS, PIECE_BITS)] == [
        *(True, True, True, False, False, True, False)
    ]
    assert len(sequences) == 4


def test_what_is_missing_is_told_in_order_up_to_an_end() -> None:
    sequences = of(3, 0, 5)
    assert list(sequences.missing(8)) == [1, 2, 4, 6, 7]
    assert list(sequences.missing(4)) == [1, 2]
    assert list(sequences.missing(0)) == []


def test_gaps_are_found_on_both_sides_of_a_boundary_between_pieces() -> None:
    there = set(range(3 * PIECE_BITS)) - {PIECE_BITS - 1, PIECE_BITS, 3 * PIECE_BITS - 1}
    assert list(of(*there).missing(3 * PIECE_BITS)) == [PIECE_BITS - 1, PIECE_BITS, 3 * PIECE_BITS - 1]
    assert list(of(*range(2 * PIECE_BITS)).missing(2 * PIECE_BITS)) == []


def test_a_sequence_far_off_costs_neither_memory_nor_time() -> None:
    tracemalloc.start()
    try:
        sequences = of(0, 10**17)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000
    assert list(islice(sequences.missing(10**17), 2)) == [1, 2]


def test_it_takes_a_bit_per_member() -> None:
    tracemalloc.start()
    try:
        sequences = of(*range(100 * PIECE_BITS))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(sequences) == 100 * PIECE_BITS
    assert taken < 2 * 100 * PIECE_BITS / 8


def test_what_is_in_it_can_be_asked() -> None:
    sequences = Sequences()
    _ = sequences.add(5_000)
    assert 5_000 in sequences
    assert [each in sequences for each in (0, 4_999, 5_001, 100_000)] == [False] * 4
