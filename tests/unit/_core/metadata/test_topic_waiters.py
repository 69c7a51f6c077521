from __future__ import annotations

import asyncio
import gc

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


async def test_who_waits_is_woken_when_the_topic_is_known() -> None:
    room = TopicWaiters()
    first, second = room.enter("orders"), room.enter("orders")
    known = after(NOTHING, topic("orders", 1))
    room.serve(known, ["orders"])
    assert first.result() is second.result() is known.topics["orders"]
    assert not room.topics


async def test_who_waits_for_the_same_topic_is_woken_in_the_order_in_which_it_came() -> None:
    room, woken = TopicWaiters(), list[int]()

    async def wait(number: int) -> None:
        await room.enter("orders")
        woken.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(50)]
    await asyncio.sleep(0)
    room.serve(after(NOTHING, topic("orders", 1)), ["orders"])
    await asyncio.gather(*waiting)
    assert woken == list(range(50))


async def test_who_waits_for_another_topic_is_not_woken() -> None:
    room = TopicWaiters()
    waiter = room.enter("audit")
    room.serve(after(NOTHING, topic("orders", 1)), ["orders"])
    assert not waiter.done()
    assert room.topics == {"audit"}


async def test_a_topic_may_have_partitions_without_leaders() -> None:
    room = TopicWaiters()
    waiter = room.enter("orders")
    room.serve(after(NOTHING, topic("orders", -1)), ["orders"])
    assert waiter.done()


async def test_a_topic_of_which_nothing_is_said_is_waited_for() -> None:
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
async def test_final_errors_are_told_at_once_to_each_as_an_instance_of_its_own(
    error: type[BrokerError],
) -> None:
    room = TopicWaiters()
    first, second = room.enter("orders"), room.enter("orders")
    room.serve(after(NOTHING, refused("orders", error)), ["orders"])
    assert type(first.result()) is type(second.result()) is error
    assert first.result() is not second.result()
    assert "'orders'" in str(first.result())


async def test_a_final_error_does_not_matter_while_the_partitions_are_known() -> None:
    """Produce requests are refused, or not, on their own."""
    room = TopicWaiters()
    waiter = room.enter("orders")
    known = after(NOTHING, topic("orders", 1))
    room.serve(after(known, refused("orders", TopicAuthorizationFailed)), ["orders"])
    assert not isinstance(waiter.result(), BrokerError)


async def test_everybody_can_be_failed_with_an_instance_each() -> None:
    room = TopicWaiters()
    first, second = room.enter("orders"), room.enter("audit")
    room.fail_all(lambda: ProducerClosed("closed"))
    assert isinstance(first.result(), ProducerClosed)
    assert first.result() is not second.result()
    assert not room.topics


async def test_who_leaves_is_not_waited_for_any_more() -> None:
    room = TopicWaiters()
    first, second = room.enter("orders"), room.enter("orders")
    room.leave("orders", first)
    assert room.topics == {"orders"}
    room.leave("orders", second)
    assert not room.topics
    room.leave("orders", second)


async def test_who_was_cancelled_but_has_not_run_since_is_passed_over() -> None:
    room = TopicWaiters()
    waiter = room.enter("orders")
    waiter.cancel()
    room.serve(after(NOTHING, topic("orders", 1)), ["orders"])
    assert waiter.cancelled()
    assert not room.topics


async def test_an_error_that_nobody_looks_at_is_not_complained_about() -> None:
    """The loop complains of exceptions in futures that nobody retrieved; these are results."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    room = TopicWaiters()
    waiter = room.enter("orders")
    room.fail_all(lambda: ProducerClosed("closed"))
    assert waiter.done()
    del waiter
    gc.collect()
    assert not complaints


def test_the_error_of_a_topic_names_it_and_says_what_it_means() -> None:
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


async def test_only_broker_denies_a_partition_alone() -> None:
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
