"""The model: a correct history, and a history for each promise whose violation it has to find."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from aioproducer import DeliveryTimeout, ProducerError, RecordMetadata
from aioproducer.errors import MessageTooLarge
from tests.cases import for_each
from tests.scenarios.faults.model import Call, Calm, Cancelled, History, Life, Log, Outcome, check


def value(number: int) -> bytes:
    return b"%d" % number


def acknowledged(offset: int, partition: int = 0, topic: str = "a") -> RecordMetadata:
    return RecordMetadata(topic, partition, offset, timestamp_ms=0, log_append_time=False)


def failed(kind: type[ProducerError] = DeliveryTimeout, *, possibly_persisted: bool = False) -> ProducerError:
    return kind("late", possibly_persisted=possibly_persisted)


def call(
    number: int,
    outcome: Outcome | None,
    *,
    called_at: float = 1.0,
    resolved_at: float = 2.0,
    how: str = "send",
    partition: int | None = 0,
    deadline: float = 10.0,
    first: int | None = None,
) -> Call:
    first = number if first is None else first
    made = Call(number, how, "a", partition, value(number), called_at, deadline, first)
    if outcome is not None:
        made.settle(outcome, resolved_at)
    return made


def log(*numbers: int, began_at: float = 0.0, ended_at: float = inf) -> Log:
    return Log(began_at, ended_at, [value(number) for number in numbers])


def life(
    *logs: Log, again: bool = False, began_at: float = 0.0, ended_at: float = inf, partitions: int = 1
) -> Life:
    return Life("a", again, began_at, ended_at, [(began_at, partitions)], {0: list(logs)})


def broken(
    *calls: Call,
    lives: tuple[Life, ...] = (),
    calms: tuple[Calm, ...] = (),
    idempotent: bool = True,
    may_fail: tuple[type[ProducerError], ...] = (),
) -> set[str]:
    history = History(idempotent=idempotent, calls=calls, lives=lives, calms=calms, may_fail=may_fail)
    return set(check(history).broken)


def test_model_accepts_a_correct_run() -> None:
    calls = [
        call(0, acknowledged(0)),
        call(1, acknowledged(1)),
        call(2, failed()),
        call(3, failed(possibly_persisted=True)),
        call(4, Cancelled.CANCELLED),
        call(5, ValueError(), partition=1),
    ]
    assert broken(*calls, lives=(life(log(0, 1, 3, 4)),)) == set()


class TestAcknowledged:
    promise = "acknowledged is in the log, where it was told"

    @pytest.mark.parametrize(
        "lives",
        [
            (life(log()),),
            (life(log(0, 1)),),  # where the other one was
            (life(log(1, ended_at=0.5), log(began_at=0.5)),),  # lost before the call
            (life(log(1, ended_at=0.5), ended_at=0.5), life(log(began_at=0.5), again=True, began_at=0.5)),
            (life(log(), log(1, began_at=3.0)),),  # appended after the outcome
        ],
    )
    def test_acknowledged_record_must_be_in_the_log(self, lives: tuple[Life, ...]) -> None:
        calls = [call(0, failed(possibly_persisted=True)), call(1, acknowledged(0))]
        assert broken(*calls, lives=lives) == {self.promise}

    @pytest.mark.parametrize(
        "lives",
        [
            (life(log(0, ended_at=3.0), log(began_at=3.0)),),
            (life(log(0, ended_at=3.0), ended_at=3.0), life(log(began_at=4.0), again=True, began_at=4.0)),
            (life(log(0, ended_at=1.5), log(began_at=1.5)),),  # between the append and its answer
        ],
    )
    def test_acknowledged_record_may_be_lost_with_the_log_end(self, lives: tuple[Life, ...]) -> None:
        assert broken(call(0, acknowledged(0)), lives=lives) == set()

    def test_unknown_offset_matches_any_offset(self) -> None:
        assert broken(call(0, acknowledged(-1)), lives=(life(log(0)),)) == set()

    def test_record_must_be_in_its_partition(self) -> None:
        told = call(0, acknowledged(0), partition=1)
        assert "in the partition that was asked for" in broken(told, lives=(life(log(0), partitions=2),))


class TestTwice:
    def test_record_must_be_once_in_a_log(self) -> None:
        assert broken(call(0, acknowledged(0)), lives=(life(log(0, 0)),)) == {"never twice in one log"}

    def test_record_may_be_twice_without_idempotence(self) -> None:
        assert broken(call(0, acknowledged(0)), lives=(life(log(0, 0)),), idempotent=False) == set()

    def test_record_resent_after_a_lost_log_end_counts_once(self) -> None:
        lives = (life(log(0, ended_at=1.5), log(0, began_at=1.5)),)
        assert broken(call(0, acknowledged(0)), lives=lives) == set()


class TestFailed:
    promise = "failed and not possibly_persisted is in no log"

    @pytest.mark.parametrize(
        "lives", [(life(log(0)),), (life(log(0, ended_at=1.5), log(began_at=1.5)),)], ids=["there", "cut off"]
    )
    @pytest.mark.parametrize("outcome", [failed(), ValueError()])
    def test_record_reported_absent_must_be_in_no_log(
        self, lives: tuple[Life, ...], outcome: ProducerError | ValueError
    ) -> None:
        assert self.promise in broken(call(0, outcome), lives=lives)

    def test_possibly_persisted_record_may_be_in_the_log(self) -> None:
        assert broken(call(0, failed(possibly_persisted=True)), lives=(life(log(0)),)) == set()

    def test_record_must_fail_with_an_error_of_the_brokers(self) -> None:
        refused = call(0, failed(MessageTooLarge))
        assert broken(refused) == {"nothing fails with MessageTooLarge"}
        assert broken(refused, may_fail=(MessageTooLarge,)) == set()

    def test_call_cancelled_without_a_partition_is_in_no_log(self) -> None:
        cancelled = call(0, Cancelled.CANCELLED)
        assert broken(cancelled, lives=(life(log(0), began_at=3.0),)) == {
            "cancelled while there is no such partition, it is in no log"
        }


class TestValueError:
    promise = "a ValueError is for a partition that does not exist"

    @pytest.mark.parametrize(
        ("there", "promises"),
        [
            (life(log()), {promise}),
            (life(log(), began_at=1.5), set()),
            (life(log(), ended_at=1.5), set()),
            (life(log(), began_at=3.0), set()),
        ],
    )
    def test_partition_error_needs_a_time_without_the_partition(
        self, there: Life, promises: set[str]
    ) -> None:
        assert broken(call(0, ValueError()), lives=(there,)) == promises

    def test_partition_error_is_accepted_when_the_topic_grew(self) -> None:
        grown = life(log(), partitions=1)
        grown.sizes.append((1.5, 2))
        assert broken(call(0, ValueError(), partition=1), lives=(grown,)) == set()
        assert broken(call(0, ValueError(), partition=1, called_at=1.6), lives=(grown,)) == {self.promise}

    def test_nowait_call_may_see_earlier_metadata(self) -> None:
        late = life(log(), began_at=0.5)
        assert broken(call(0, ValueError(), how="send_nowait"), lives=(late,)) == set()
        assert broken(call(0, ValueError(), how="send"), lives=(late,)) == {self.promise}


class TestOrder:
    promise = "order per partition"

    @pytest.mark.parametrize("idempotent", [True, False])
    def test_log_order_must_be_that_of_the_calls(self, idempotent: bool) -> None:
        calls = [call(0, acknowledged(1)), call(1, acknowledged(0))]
        assert broken(*calls, lives=(life(log(1, 0)),), idempotent=idempotent) == {self.promise}

    def test_record_of_unknown_outcome_must_keep_the_order(self) -> None:
        calls = [call(0, Cancelled.CANCELLED), call(1, acknowledged(0))]
        assert broken(*calls, lives=(life(log(1, 0)),)) == {self.promise}
        assert broken(*calls, lives=(life(log(1, 0)),), idempotent=False) == set()

    @pytest.mark.parametrize(
        ("numbers", "promises"),
        [
            ((0, 1, 3, 2), set()),  # other calls may append between two chunks
            ((0, 2, 1, 3), {promise}),  # but not between the records of one
            ((3, 0, 1, 2), {promise}),  # nor before the first of them
            ((0, 1, 4, 2, 3), {promise}),  # nor if they were called for when all of it was there
        ],
    )
    def test_send_many_has_an_order_of_its_own(self, numbers: tuple[int, ...], promises: set[str]) -> None:
        calls = [
            *[call(n, acknowledged(numbers.index(n)), first=0) for n in (0, 1, 2)],
            call(3, acknowledged(numbers.index(3)), called_at=1.5),
            call(4, acknowledged(numbers.index(4) if 4 in numbers else -1), called_at=2.5, resolved_at=3.0),
        ]
        assert broken(*calls, lives=(life(log(*numbers)),)) - {TestAcknowledged.promise} == promises

    def test_order_counts_the_first_copy(self) -> None:
        calls = [call(0, acknowledged(0)), call(1, acknowledged(1))]
        assert broken(*calls, lives=(life(log(0, 1, 0)),), idempotent=False) == set()

    @for_each(
        "lives",
        [
            lambda moment: (life(log(9, ended_at=moment), log(1, 0, began_at=moment)),),
            lambda moment: (life(log(1, 0, began_at=moment), again=True, began_at=moment),),
        ],
    )
    @for_each(
        ("moment", "acknowledged_since", "promises"),
        [
            (1.5, 3.0, set()),  # the records were under way
            (0.5, 1.1, set()),  # they were called for before anybody could know
            (0.5, 0.9, {promise}),
            (2.5, 3.0, {promise}),  # they had their outcomes
        ],
    )
    def test_order_may_break_after_a_leader_lost_the_producer(
        self,
        lives: Callable[[float], tuple[Life, ...]],
        moment: float,
        acknowledged_since: float,
        promises: set[str],
    ) -> None:
        calls = [
            call(9, Cancelled.CANCELLED, called_at=0.1, resolved_at=0.2),
            call(0, acknowledged(-1)),
            call(1, acknowledged(-1)),
            call(10, acknowledged(-1), called_at=moment, resolved_at=acknowledged_since),
        ]
        assert broken(*calls, lives=lives(moment)) - {TestAcknowledged.promise} == promises

    def test_unknown_outcome_may_arrive_late_after_a_lost_producer(self) -> None:
        calls = [
            call(0, failed(possibly_persisted=True)),
            call(1, acknowledged(0), called_at=6.0, resolved_at=7.0),
        ]
        lives = (life(log(ended_at=5.0), log(1, 0, began_at=5.0)),)
        assert broken(*calls, lives=lives) == set()


class TestTime:
    def test_model_requires_an_outcome_of_every_call(self) -> None:
        assert broken(call(0, None)) == {"every call has an outcome"}

    def test_outcome_must_arrive_by_the_deadline(self) -> None:
        assert broken(call(0, failed(), resolved_at=10.05)) == set()
        assert broken(call(0, failed(), resolved_at=10.15)) == {"resolved by the deadline plus one tick"}

    @for_each(
        ("called_at", "resolved_at", "outcome", "promises"),
        [
            (1.0, 5.5, acknowledged(0), set()),
            (1.0, 6.5, acknowledged(0), {"goes on when all is calm"}),
            (1.0, 5.5, failed(), set()),
            (7.0, 8.4, acknowledged(0), set()),
            (7.0, 8.6, acknowledged(0), {"goes on when all is calm"}),
            (7.0, 7.1, failed(), {"acknowledged when all is calm"}),
            (9.0, 30.0, acknowledged(0), set()),  # trouble is back before it was due
        ],
    )
    def test_records_must_be_acknowledged_soon_in_a_calm(
        self, called_at: float, resolved_at: float, outcome: Outcome, promises: set[str]
    ) -> None:
        made = call(0, outcome, called_at=called_at, resolved_at=resolved_at, deadline=40.0)
        there = life(log(0) if isinstance(outcome, RecordMetadata) else log())
        assert broken(made, lives=(there,), calms=(Calm(4.0, 6.0, 10.0),)) == promises

    def test_short_deadline_may_pass_in_a_calm(self) -> None:
        hasty = call(0, failed(), called_at=7.0, resolved_at=7.1, deadline=7.1)
        assert broken(hasty, lives=(life(log()),), calms=(Calm(4.0, 6.0, 10.0),)) == set()

    def test_records_for_removed_partitions_may_expire_in_a_calm(self) -> None:
        waiting = call(0, failed(), partition=1, resolved_at=30.0, deadline=40.0)
        lives = (
            life(ended_at=2.0, partitions=2),
            life(again=True, began_at=2.0, partitions=1),
        )
        assert broken(waiting, lives=lives, calms=(Calm(4.0, 6.0, 10.0),)) == set()


def test_log_must_hold_only_sent_records() -> None:
    assert broken(lives=(life(log(0)),)) == {"nothing is in a log that nobody sent"}
