"""Calls that wait for the metadata of a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, KeysView
from typing import Final, NamedTuple, TypeAlias

from aioproducer._core.metadata.snapshot import MetadataSnapshot, TopicInfo
from aioproducer.errors import (
    BrokerError,
    ClusterAuthorizationFailed,
    InvalidTopicException,
    ProducerError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)

FINAL_ERRORS: Final = (InvalidTopicException, TopicAuthorizationFailed, ClusterAuthorizationFailed)
"""Errors that no later response changes: the waiting calls fail immediately."""

Waiter: TypeAlias = "asyncio.Future[TopicInfo | ProducerError]"
"""Future whose result may be an error: asyncio would log an exception that a cancelled call never retrieves."""


ENOUGH_DENIALS: Final = 3
"""Number of denials that prove a topic missing even if one broker sent all denials: the other brokers may be silent."""


class Answer(NamedTuple):
    """The origin of a snapshot."""

    request: int = 0
    """Number of the request, counted from 1."""
    node_id: int = -1
    """Node that answered; below 0 if unknown."""
    is_only_broker: bool = False
    """True if the cluster has one broker."""


ANY_ANSWER: Final = Answer()


class TopicDenials:
    """Counter of the answers that deny a topic or partition. Only answers to requests sent after the call count.

    One answer proves nothing, because new topics and partitions reach brokers late (the Java client waits for
    `max.block.ms` instead). Two answers of the only broker or of different brokers prove the denial, or `ENOUGH_DENIALS` answers.
    """

    __slots__ = ("_count", "_first_node", "_requests")

    def __init__(self, requests: int) -> None:
        """*requests* is the number of requests that were sent before the call."""
        self._requests = requests
        self._count = 0
        self._first_node = -1

    def are_final(self, answer: Answer) -> bool:
        """Add *answer*; return True if the topic or partition does not exist."""
        if answer.request <= self._requests:
            return False
        self._count += 1
        if self._first_node < 0:
            self._first_node = answer.node_id
        is_other = 0 <= self._first_node != answer.node_id >= 0
        return is_other or self._count >= (2 if answer.is_only_broker else ENOUGH_DENIALS)


class NewAnswer:
    """Condition of a waiter: an answer to a request that is sent after the call.

    With *partition*, the answer lists the partition, or the only broker or `TopicDenials` deny the partition.
    """

    __slots__ = ("_denials", "_partition", "_requests")

    def __init__(self, requests: int, partition: int | None = None) -> None:
        """*requests* is the number of requests that were sent before the call."""
        self._requests = requests
        self._partition = partition
        self._denials = TopicDenials(requests)

    def is_met(self, info: TopicInfo, answer: Answer) -> bool:
        """Add *answer*, which led to *info*; return True if the wait is over."""
        if self._partition is not None and self._partition < len(info.partitions):
            return True
        if self._partition is None or answer.is_only_broker:
            return answer.request > self._requests
        return self._denials.are_final(answer)


class TopicWaiters:
    """Waiters by topic, woken in the order of their calls."""

    def __init__(self) -> None:
        self._waiters: dict[str, dict[Waiter, NewAnswer | None]] = {}
        self._denials: dict[Waiter, TopicDenials] = {}

    @property
    def topics(self) -> KeysView[str]:
        """Topics with waiting calls."""
        return self._waiters.keys()

    def enter(
        self, topic: str, condition: NewAnswer | None = None, denials: TopicDenials | None = None
    ) -> Waiter:
        """Return a Future for *topic*; without *condition* any answer with partitions completes the Future.

        With *denials*, the wait fails once the topic is proved missing. Otherwise, brokers may create the topic.
        """
        waiter: Waiter = asyncio.get_running_loop().create_future()
        if denials is not None:
            self._denials[waiter] = denials
        self._waiters.setdefault(topic, {})[waiter] = condition
        return waiter

    def leave(self, topic: str, waiter: Waiter) -> None:
        """Remove *waiter* unless it was removed before."""
        waiters = self._waiters.get(topic, {})
        waiters.pop(waiter, None)
        self._denials.pop(waiter, None)
        if not waiters:
            self._waiters.pop(topic, None)

    def serve(self, snapshot: MetadataSnapshot, topics: Iterable[str], answer: Answer = ANY_ANSWER) -> None:
        """Wake each waiter of *topics* if *answer* meets its condition, or refuses the topic with a final error."""
        for topic in self.topics & set(topics):
            info = snapshot.topics.get(topic)
            if info is None:
                continue
            for waiter, condition in tuple(self._waiters[topic].items()):
                if info.partitions:
                    if condition is None or condition.is_met(info, answer):
                        self.wake(topic, waiter, info)
                elif info.error is not None and info.error in FINAL_ERRORS:
                    self.wake(topic, waiter, topic_error(topic, info.error))
                elif info.error is UnknownTopicOrPartition:
                    denials = self._denials.get(waiter)
                    if denials is not None and denials.are_final(answer):
                        self.wake(topic, waiter, no_topic(topic))

    def wake(self, topic: str, waiter: Waiter, outcome: TopicInfo | ProducerError) -> None:
        """Wake *waiter* with *outcome*; the waiting call raises *outcome* if it is an error."""
        self.leave(topic, waiter)
        if not waiter.done():  # a waiter is done if its task was cancelled and runs next
            waiter.set_result(outcome)

    def fail_all(self, error: Callable[[], ProducerError]) -> None:
        """Wake all waiters, each with its own instance from *error*."""
        for topic, waiters in tuple(self._waiters.items()):
            for waiter in tuple(waiters):
                self.wake(topic, waiter, error())


def no_topic(topic: str) -> UnknownTopicOrPartition:
    """Return the error for *topic*, which does not exist and must not be created."""
    return UnknownTopicOrPartition(
        f"topic {topic!r}: the brokers do not have it, and allow_auto_create_topics is False; create it, or correct"
        " its name"
    )


def topic_error(topic: str, kind: type[BrokerError]) -> BrokerError:
    """Return an error of *kind* for *topic*."""
    return kind(f"topic {topic!r}: {kind.__doc__ or kind.__name__}")
