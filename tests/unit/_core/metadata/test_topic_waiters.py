from __future__ import annotations

import asyncio
import gc
from typing import cast

import pytest

from aioproducer._core.metadata.snapshot import MetadataSnapshot
from aioproducer._core.metadata.topic_waiters import (
    ENOUGH_DENIALS,
    Answer,
    NewAnswer,
    TopicDenials,
    TopicWaiters,
    topic_error,
)
from aioproducer.errors import (
    BrokerError,
    ClusterAuthorizationFailed,
    InvalidTopicException,
    LeaderNotAvailable,
    ProducerClosed,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from tests.cases import for_each
from tests.unit._core.metadata.answers import after, refused, topic

NOTHING = MetadataSnapshot()


async def test_waiters_are_woken_when_the_topic_is_known() -> None:
    room = TopicWaiters()
    first, second = room.enter("orders"), room.enter("orders")
    known = after(NOTHING, topic("orders", 1))
    room.serve(known, ["orders"])
    assert first.result() is second.result() is known.topics["orders"]
    assert not room.topics


async def test_waiters_are_woken_in_their_order() -> None:
    room, woken = TopicWaiters(), list[int]()

    async def wait(number: int) -> None:
        await room.enter("orders")
        woken.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(50)]
    await asyncio.sleep(0)
    room.serve(after(NOTHING, topic("orders", 1)), ["orders"])
    await asyncio.gather(*waiting)
    assert woken == list(range(50))


async def test_waiter_for_another_topic_is_not_woken() -> None:
    room = TopicWaiters()
    waiter = room.enter("audit")
    room.serve(after(NOTHING, topic("orders", 1)), ["orders"])
    assert not waiter.done()
    assert room.topics == {"audit"}


async def test_waiter_is_woken_by_a_topic_without_leaders() -> None:
    room = TopicWaiters()
    waiter = room.enter("orders")
    room.serve(after(NOTHING, topic("orders", -1)), ["orders"])
    assert waiter.done()


async def test_waiter_for_a_topic_missing_from_the_response_waits() -> None:
    room = TopicWaiters()
    waiter = room.enter("orders")
    room.serve(NOTHING, ["orders"])
    assert not waiter.done()


@pytest.mark.parametrize("error", [UnknownTopicOrPartition, LeaderNotAvailable, UnknownServerError])
async def test_errors_that_may_pass_are_waited_out(error: type[BrokerError]) -> None:
    room = TopicWaiters()
    waiter = room.enter("orders")
    room.serve(after(NOTHING, refused("orders", error)), ["orders"])
    assert not waiter.done()


@pytest.mark.parametrize(
    "error", [TopicAuthorizationFailed, InvalidTopicException, ClusterAuthorizationFailed]
)
async def test_final_topic_error_fails_each_waiter_separately(
    error: type[BrokerError],
) -> None:
    room = TopicWaiters()
    first, second = room.enter("orders"), room.enter("orders")
    room.serve(after(NOTHING, refused("orders", error)), ["orders"])
    assert type(first.result()) is type(second.result()) is error
    assert first.result() is not second.result()
    assert "'orders'" in str(first.result())


async def test_final_topic_error_is_ignored_while_partitions_are_known() -> None:
    """Brokers accept or refuse produce requests independently of this error."""
    room = TopicWaiters()
    waiter = room.enter("orders")
    known = after(NOTHING, topic("orders", 1))
    room.serve(after(known, refused("orders", TopicAuthorizationFailed)), ["orders"])
    assert not isinstance(waiter.result(), BrokerError)


async def test_fail_all_gives_each_waiter_its_own_instance() -> None:
    room = TopicWaiters()
    first, second = room.enter("orders"), room.enter("audit")
    room.fail_all(lambda: ProducerClosed("closed"))
    assert isinstance(first.result(), ProducerClosed)
    assert first.result() is not second.result()
    assert not room.topics


async def test_leave_removes_the_waiter() -> None:
    room = TopicWaiters()
    first, second = room.enter("orders"), room.enter("orders")
    room.leave("orders", first)
    assert room.topics == {"orders"}
    room.leave("orders", second)
    assert not room.topics
    room.leave("orders", second)


async def test_cancelled_waiter_is_skipped() -> None:
    room = TopicWaiters()
    waiter = room.enter("orders")
    waiter.cancel()
    room.serve(after(NOTHING, topic("orders", 1)), ["orders"])
    assert waiter.cancelled()
    assert not room.topics


async def test_unread_error_of_a_waiter_is_not_logged() -> None:
    """The loop logs exceptions of futures that were never retrieved; these errors are results."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    room = TopicWaiters()
    waiter = room.enter("orders")
    room.fail_all(lambda: ProducerClosed("closed"))
    assert waiter.done()
    del waiter
    gc.collect()
    assert not complaints


def test_topic_error_has_the_name_and_the_meaning() -> None:
    error = topic_error("orders", TopicAuthorizationFailed)
    assert "'orders'" in str(error)
    assert str(TopicAuthorizationFailed.__doc__) in str(error)
    assert not error.possibly_persisted


TWO = after(NOTHING, topic("orders", 1, 1))
THREE = after(NOTHING, topic("orders", 1, 1, 1))


def served(snapshot: MetadataSnapshot, condition: NewAnswer, *answers: Answer) -> list[bool]:
    """Serve a waiter with each of *answers*; return after each one whether the waiter is done."""
    room, done = TopicWaiters(), list[bool]()
    waiter = room.enter("orders", condition)
    for answer in answers:
        room.serve(snapshot, ["orders"], answer)
        done.append(waiter.done())
    assert bool(room.topics) != done[-1]
    return done


async def test_answer_counts_when_the_request_is_sent_after_the_call() -> None:
    assert served(TWO, NewAnswer(4), Answer(4, 1), Answer(4, 2), Answer(5, 1)) == [False, False, True]


async def test_new_partition_ends_the_wait_in_any_answer() -> None:
    assert served(THREE, NewAnswer(4, 2), Answer(3, 1)) == [True]


async def test_absent_partition_needs_the_denials_of_two_brokers() -> None:
    denials = Answer(4, 2), Answer(5, 1), Answer(6, 1), Answer(7, 2)
    assert served(TWO, NewAnswer(4, 2), *denials) == [False, False, False, True]


async def test_partition_is_absent_after_the_denial_of_the_only_broker() -> None:
    denials = Answer(4, 1, is_only_broker=True), Answer(5, 1, is_only_broker=True)
    assert served(TWO, NewAnswer(4, 2), *denials) == [False, True]


@pytest.mark.parametrize("node_id", [1, -1])
async def test_reachable_broker_denies_a_partition_repeatedly(node_id: int) -> None:
    denials = [Answer(1 + each, node_id) for each in range(ENOUGH_DENIALS)]
    assert served(TWO, NewAnswer(0, 2), *denials) == [False] * (ENOUGH_DENIALS - 1) + [True]


class TestDenials:
    @for_each(
        ("answers", "enough"),
        [
            ([Answer(6, 1)], False),
            ([Answer(6, 1), Answer(7, 2)], True),
            ([Answer(6, 1), Answer(7, 1)], False),
            ([Answer(6, 1), Answer(7, 1), Answer(8, 1)], True),
            ([Answer(6), Answer(7)], False),
            ([Answer(6), Answer(7), Answer(8)], True),
            ([Answer(6, 1, is_only_broker=True)], False),
            ([Answer(6, 1, is_only_broker=True), Answer(7, 1, is_only_broker=True)], True),
            ([Answer(5, 1), Answer(6, 2)], False),  # the first request was sent before the call
        ],
    )
    def test_proof_needs_answers_after_the_call(self, answers: list[Answer], enough: bool) -> None:
        denials = TopicDenials(5)
        assert [denials.are_final(each) for each in answers][-1] is enough


async def test_missing_topic_fails_after_the_denials_of_two_brokers() -> None:
    room = TopicWaiters()
    waiter = room.enter("orders", denials=TopicDenials(4))
    missing = after(NOTHING, refused("orders", UnknownTopicOrPartition))
    room.serve(missing, ["orders"], Answer(5, 1))
    assert not waiter.done()
    room.serve(missing, ["orders"], Answer(6, 2))
    with pytest.raises(UnknownTopicOrPartition, match=r"'orders': .* allow_auto_create_topics is False"):
        raise cast("BrokerError", waiter.result())
    assert not room.topics
