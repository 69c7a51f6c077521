"""The view that a reader builds from the log of decisions."""

from __future__ import annotations

import pytest

from aioproducer.errors import ProtocolError
from aioproducer.spark.decision_records import (
    BEGUN,
    PIECE,
    Decided,
    Entry,
    Share,
    begun,
    committed_by,
    decision,
    done,
    may_be_doubled,
    must_skip,
)
from aioproducer.spark.delivery import BatchId, DeliveryError, Guarantee
from tests.cases import for_each
from tests.unit.spark.decision_log_rig import PREFIX, Log, read

SINGLE = Guarantee.SINGLE
COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


def batch(name: str = "query a", number: int = 7, run: str = "run-1") -> BatchId:
    return BatchId(name, number, run)


@pytest.fixture
def log() -> Log:
    return Log()


def test_decision_is_valid_once_its_transaction_is_committed(log: Log) -> None:
    log.write(1, *decision(PREFIX, batch(), SINGLE))
    assert read(log).last("query a") is None
    log.end(1, COMMIT)
    assert read(log).last("query a") == Decided(7, SINGLE, "run-1")
    assert read(log).offset == 2


def test_view_ignores_aborted_decisions(log: Log) -> None:
    log.write(1, *decision(PREFIX, batch(number=6), SINGLE))
    log.end(1, COMMIT)
    log.write(1, *decision(PREFIX, batch(number=7), SINGLE))
    log.end(1, ABORT)
    log.end(1, COMMIT)  # of a transaction that wrote nothing here that is left
    assert read(log).last("query a") == Decided(6, SINGLE, "run-1")


def test_transactions_of_others_do_not_matter(log: Log) -> None:
    log.write(9, *decision("another", batch(number=9), SINGLE))
    log.write(2, *decision(PREFIX, batch("query b", 9), SINGLE))
    log.write(1, *decision(PREFIX, batch(), SINGLE))
    log.end(2, ABORT)
    log.end(1, COMMIT)
    view = read(log)
    assert view.last("query a") == Decided(7, SINGLE, "run-1")
    assert view.last("query b") is None
    assert read(log, "another").last("query a") is None


def test_reading_goes_on_where_it_was_amid_a_transaction(log: Log) -> None:
    log.write(1, *decision(PREFIX, batch(), SINGLE))
    view = read(log)
    log.end(1, COMMIT)
    for each in log.batches:
        view.take(each)
    assert view.last("query a") == Decided(7, SINGLE, "run-1")


def test_view_ignores_records_outside_transactions(log: Log) -> None:
    log.write(1, *decision(PREFIX, batch(), SINGLE), transactional=False)
    log.end(1, COMMIT)
    assert read(log).last("query a") is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b'{"v":2}', "use the newer version"),
        (b"[]", "use the newer version"),
        (b'{"v":1}', "invalid record: 'batch'"),
        (b'{"v":1,"batch":1,"guarantee":"x","run":""}', "invalid record: 'x'"),
        (
            b'{"v":1,"batch":"x","guarantee":"exactly-once-single","run":""}',
            "invalid record: invalid literal",
        ),
    ],
)
def test_view_raises_for_unreadable_records(log: Log, value: bytes, message: str) -> None:
    log.write(1, Entry(decision(PREFIX, batch(), SINGLE)[0].key, value))
    log.end(1, COMMIT)
    with pytest.raises(DeliveryError, match=message):
        read(log)


def test_decision_that_is_not_json_is_a_protocol_error(log: Log) -> None:
    log.write(1, Entry(b"{", b""))
    with pytest.raises(ProtocolError, match="not JSON"):
        read(log)


@pytest.mark.parametrize(("number", "skipped"), [(6, True), (7, True), (8, False)])
def test_committed_batch_is_skipped(number: int, skipped: bool) -> None:
    last = Decided(7, SINGLE, "run-1")
    for replays in (True, False):
        assert must_skip(last, batch(number=number, run="run-2"), SINGLE, replays=replays) is skipped
    assert not must_skip(None, batch(number=number), SINGLE, replays=True)


def test_second_write_of_a_batch_in_one_run_is_refused() -> None:
    last = Decided(7, SINGLE, "run-1")
    with pytest.raises(DeliveryError, match=r"a\s+transactionalIdPrefix of its own"):
        must_skip(last, batch(), SINGLE, replays=False)
    assert must_skip(last, batch(), SINGLE, replays=True)
    assert must_skip(last._replace(run=""), batch(run=""), SINGLE, replays=False)


def test_guarantee_of_a_query_cannot_change() -> None:
    with pytest.raises(DeliveryError, match="has decisions with deliveryGuarantee=at-least-once"):
        must_skip(Decided(7, Guarantee.AT_LEAST_ONCE, ""), batch(), SINGLE, replays=True)


def shares(count: int) -> list[Share]:
    return [Share(f"p.t.r.{each}.0", each, 1, 2, 0, 60_000, "rows", 0, each) for each in range(count)]


@pytest.mark.parametrize("count", [0, 1, PIECE, 2 * PIECE + 1])
def test_decision_has_the_shares_of_all_tasks(log: Log, count: int) -> None:
    log.write(1, *decision(PREFIX, batch(), Guarantee.LOG, shares(count)))
    log.end(1, COMMIT)
    decided = read(log).last("query a")
    assert decided == Decided(7, Guarantee.LOG, "run-1", tuple(shares(count)))
    log.write(1, done(PREFIX, "query a", 7))
    assert read(log).last("query a") == decided
    log.end(1, COMMIT)
    assert read(log).last("query a") == decided._replace(is_done=True)


def test_decision_uses_only_its_own_shares(log: Log) -> None:
    for number, count in ((6, 2 * PIECE), (7, 3)):
        log.write(1, *decision(PREFIX, batch(number=number), Guarantee.LOG, shares(count)))
        log.write(1, done(PREFIX, "query a", number - 1))  # late, and of another
        log.end(1, COMMIT)
    assert read(log).last("query a") == Decided(7, Guarantee.LOG, "run-1", tuple(shares(3)))


def test_view_reads_a_compacted_log(log: Log) -> None:
    head = decision(PREFIX, batch(number=6), Guarantee.LOG, shares(3))[-1]
    log.write(1, head)
    log.end(1, COMMIT)
    log.write(1, *decision(PREFIX, batch(number=7), Guarantee.LOG, shares(2)))
    log.end(1, COMMIT)
    assert read(log).last("query a") == Decided(7, Guarantee.LOG, "run-1", tuple(shares(2)))


def test_view_keeps_decisions_of_other_prefixes(log: Log) -> None:
    for prefix, number, key in (
        ("one", 3, COMMIT),
        ("two", 9, ABORT),
        ("two", 5, COMMIT),
        (PREFIX, 7, COMMIT),
    ):
        log.write(1, *decision(prefix, batch(number=number), Guarantee.LOG, shares(2)))
        log.write(1, *decision(prefix, batch("job nightly", number), SINGLE))
        log.write(1, done(prefix, "query a", number))
        log.end(1, key)
    view = read(log)
    assert view.elsewhere("query a") == {
        "one": Decided(3, Guarantee.LOG, "run-1"),
        "two": Decided(5, Guarantee.LOG, "run-1"),
    }
    assert view.elsewhere("query b") == view.elsewhere("job nightly") == {}


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"v":2}', b'{"batch":1,"guarantee":"newer","run":""}'])
def test_unreadable_decision_of_another_prefix_is_left_out(log: Log, value: bytes) -> None:
    log.write(1, Entry(decision("another", batch(), SINGLE)[0].key, value))
    log.end(1, COMMIT)
    assert read(log).elsewhere("query a") == {}


@pytest.mark.parametrize("first_offset", [0, 500])
def test_first_use_of_a_prefix_is_noted_as_done(log: Log, first_offset: int) -> None:
    log.write(1, *begun(PREFIX, first_offset))
    log.end(1, COMMIT)
    assert read(log).all() == {BEGUN: Decided(first_offset, Guarantee.LOG, "", is_done=True)}


def at(number: int, run: str = "run-1") -> Decided:
    return Decided(number, Guarantee.LOG, run)


@for_each(
    ("elsewhere", "prefix"),
    [
        ({}, None),
        ({"old": at(6)}, None),
        ({"old": at(7)}, "old"),
        ({"older": at(3), "old": at(8)}, "old"),
        ({"other write of foreachBatch": at(7, "run-2")}, None),
    ],
)
def test_batch_is_committed_by_another_prefix(elsewhere: dict[str, Decided], prefix: str | None) -> None:
    assert committed_by(elsewhere, batch(run="run-2")) == prefix


@for_each(
    ("last", "elsewhere", "number", "reason"),
    [
        (None, {}, 0, None),
        (None, {}, 1, "no decision yet"),
        (None, {"old": at(6)}, 7, None),
        (None, {"old": at(5)}, 7, "the last decision is on batch 5"),
        (None, {"old": at(7)}, 7, "committed under transactionalIdPrefix 'old'"),
        (None, {"other write": at(7, "run-2")}, 7, None),
        (at(6), {}, 7, None),
        (at(6), {"other write": at(7)}, 7, None),
        (at(4), {}, 7, "the last decision is on batch 4"),
        (at(4), {"old": at(6)}, 7, None),
    ],
)
def test_first_batch_of_a_run_may_be_doubled(
    last: Decided | None, elsewhere: dict[str, Decided], number: int, reason: str | None
) -> None:
    found = may_be_doubled(last, elsewhere, batch(number=number, run="run-2"))
    assert found is None if reason is None else reason in (found or "")
