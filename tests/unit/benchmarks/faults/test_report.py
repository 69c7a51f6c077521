from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.faults.report import HEADINGS, row, table
from benchmarks.faults.score import Score
from benchmarks.faults.terms import PARTITIONS

FIGURES = Score(
    acknowledged_not_in_log=1,
    duplicates=2,
    out_of_order=3,
    failed=4_000,
    failed_but_in_log=5,
    unresolved=6,
    recovery_s=0.123,
    records=8_000,
    partitions_alive=PARTITIONS,
    errors={},
)


def test_figures_stand_under_their_headings() -> None:
    lines = table([("storm", [row("ours", FIGURES)])]).splitlines()
    heads, cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], lines[2]))
    assert dict(zip(heads, cells, strict=True)) == dict(
        zip(
            HEADINGS,
            ("storm", "ours", "8,000", "1", "2", "3", "4,000", "5", "6", "0.12 s", "yes"),
            strict=True,
        )
    )


def test_a_title_stands_in_the_first_of_its_rows_only() -> None:
    text = table([("storm", [row("ours", FIGURES), row("theirs", FIGURES)])])
    assert text.count("storm") == 1


def test_lines_are_of_one_width() -> None:
    lines = table([("storm", [row("ours", FIGURES)]), ("a calm", [row("a long name", FIGURES)])]).splitlines()
    assert len(lines) == 4
    assert len(set(map(len, lines))) == 1


@pytest.mark.parametrize(("partitions", "told"), [(0, "no"), (1, "1 of 4"), (PARTITIONS, "yes")])
def test_what_is_left_of_a_producer_is_told(partitions: int, told: str) -> None:
    assert row("ours", replace(FIGURES, partitions_alive=partitions))[-1] == told


def test_no_recovery_is_told_as_such() -> None:
    assert "never" in row("ours", replace(FIGURES, recovery_s=None))
