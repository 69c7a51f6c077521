from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.faults.load import Sent
from benchmarks.faults.score import Score, score

TIMEOUT_S = 7.0
HEALED_AT = 10.0


def sent(
    partition: int, number: int, *, probe: bool = False, at: float = 9.0, resolved_at: float | None = 9.1
) -> Sent:
    return Sent(partition, number, probe, called_at=at, taken_at=at, resolved_at=resolved_at)


def delivered(partition: int, number: int, offset: int, *, probe: bool = False, at: float = 9.1) -> Sent:
    each = sent(partition, number, probe=probe, resolved_at=at)
    each.offset = offset
    return each


def failed(partition: int, number: int, error: str, *, possibly_persisted: bool = False) -> Sent:
    each = sent(partition, number)
    each.error, each.possibly_persisted = error, possibly_persisted
    return each


def scored(sent: Sequence[Sent], *logs: Sequence[bytes]) -> Score:
    return score(sent, logs, healed_at=HEALED_AT, timeout_s=TIMEOUT_S)


def test_score_of_a_faultless_run_counts_nothing() -> None:
    figures = scored(
        [
            delivered(0, 0, 0, at=10.25),
            delivered(1, 0, 0, at=10.5),
            delivered(0, 1, 1, probe=True),
            delivered(1, 1, 1, probe=True),
        ],
        [b"0/0/", b"0/1/"],
        [b"1/0/", b"1/1/"],
    )
    assert figures == Score(
        acknowledged_not_in_log=0,
        duplicates=0,
        out_of_order=0,
        failed=0,
        failed_but_in_log=0,
        unresolved=0,
        recovery_s=0.5,
        records=2,
        partitions_alive=2,
        errors={},
    )


@pytest.mark.parametrize(
    ("offset", "missing"), [(0, 0), (-1, 0), (1, 1), (7, 1)], ids=["there", "anywhere", "elsewhere", "beyond"]
)
def test_acknowledged_record_away_from_its_offset_is_missing(offset: int, missing: int) -> None:
    assert scored([delivered(0, 3, offset)], [b"0/3/", b"0/4/"]).acknowledged_not_in_log == missing


def test_record_at_an_unknown_offset_may_be_anywhere_in_the_log() -> None:
    assert scored([delivered(0, 3, -1)], [b"0/4/"]).acknowledged_not_in_log == 1


def test_acknowledged_probe_counts_as_missing_too() -> None:
    assert scored([delivered(0, 0, 0, probe=True)], []).acknowledged_not_in_log == 1


def test_every_copy_but_the_first_is_a_duplicate() -> None:
    assert scored([], [b"0/0/", b"0/1/", b"0/0/", b"0/0/"]).duplicates == 2


def test_duplicate_is_not_out_of_order() -> None:
    assert scored([], [b"0/0/", b"0/1/", b"0/0/"]).out_of_order == 0


def test_records_behind_a_later_one_are_counted_once_each() -> None:
    assert scored([], [b"0/0/", b"0/4/", b"0/1/", b"0/2/", b"0/5/"]).out_of_order == 2


def test_failures_are_counted_by_their_class() -> None:
    figures = scored([failed(0, 0, "A: x"), failed(0, 1, "A: y"), failed(0, 2, "B")], [])
    assert figures.failed == 3
    assert figures.errors == {"A": 2, "B": 1}


@pytest.mark.parametrize("possibly_persisted", [False, True])
def test_failed_record_in_the_log_needs_possibly_persisted(*, possibly_persisted: bool) -> None:
    figures = scored([failed(0, 0, "A", possibly_persisted=possibly_persisted)], [b"0/0/"])
    assert figures.failed_but_in_log == (not possibly_persisted)


@pytest.mark.parametrize(
    ("resolved_at", "unresolved"), [(9.0 + TIMEOUT_S, 0), (9.1 + TIMEOUT_S, 1), (None, 1)]
)
def test_late_outcome_counts_as_unresolved(resolved_at: float | None, unresolved: int) -> None:
    assert scored([sent(0, 0, resolved_at=resolved_at)], []).unresolved == unresolved


def test_time_starts_when_the_client_accepted_the_record() -> None:
    blocked = sent(0, 0, at=1.0, resolved_at=9.0)
    blocked.taken_at = 3.0
    assert scored([blocked], []).unresolved == 0


def test_time_of_a_hanging_call_starts_at_the_call() -> None:
    stuck = sent(0, 0, at=1.0, resolved_at=9.0)
    stuck.taken_at = None
    assert scored([stuck], []).unresolved == 1


def test_recovery_is_that_of_the_last_partition() -> None:
    early = delivered(1, 0, 0, at=HEALED_AT - 0.1)
    figures = scored(
        [early, delivered(0, 0, 0, at=10.1), delivered(1, 1, 1, at=11.5), delivered(1, 2, 2, at=12.0)],
        [b"0/0/"],
        [b"1/0/", b"1/1/", b"1/2/"],
    )
    assert figures.recovery_s == pytest.approx(1.5)


def test_partition_reached_only_by_probes_has_not_recovered() -> None:
    assert scored([delivered(0, 0, 0, probe=True, at=12.0)], [b"0/0/"]).recovery_s is None


def test_partition_is_alive_if_its_probe_is_delivered() -> None:
    dead = sent(0, 1, probe=True)
    assert (
        scored(
            [delivered(0, 0, 0), dead, delivered(1, 0, 0, probe=True)], [b"0/0/"], [b"1/0/"]
        ).partitions_alive
        == 1
    )
