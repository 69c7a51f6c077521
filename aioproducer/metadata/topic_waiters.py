"""Those who wait for a topic: each is woken when there is something about that topic, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, KeysView
from typing import Final, TypeAlias

from aioproducer.errors import (
    BrokerError,
    ClusterAuthorizationFailed,
    InvalidTopicException,
    ProducerError,
    TopicAuthorizationFailed,
)
from aioproducer.metadata.snapshot import MetadataSnapshot, TopicInfo

FINAL_ERRORS: Final = (InvalidTopicException, TopicAuthorizationFailed, ClusterAuthorizationFailed)
"""What will not be different a moment later, so nobody waits for that."""

Waiter: TypeAlias = "asyncio.Future[TopicInfo | ProducerError]"
"""Errors are results here: a waiter that was cancelled retrieves no exception, which asyncio would complain about."""


class TopicWaiters:
    """The waiters by topic; those of one topic are woken in the order in which they came."""

    def __init__(self) -> None:
        self._waiters: dict[str, dict[Waiter, None]] = {}

    @property
    def topics(self) -> KeysView[str]:
        """The topics that somebody waits for."""
        return self._waiters.keys()

    def enter(self, topic: str) -> Waiter:
        """Return a future for *topic*."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(topic, {})[waiter] = None
        return waiter

    def leave(self, topic: str, waiter: Waiter) -> None:
        """Forget *waiter*; it may have left already."""
        waiters = self._waiters.get(topic, {})
        waiters.pop(waiter, None)
        if not waiters:
            self._waiters.pop(topic, None)

    def serve(self, snapshot: MetadataSnapshot, topics: Iterable[str]) -> None:
        """Wake those whose topic, one of *topics*, is known now, or will not be."""
        for topic in self.topics & set(topics):
            info = snapshot.topics.get(topic)
            if info is None:
                continue
            for waiter in tuple(self._waiters[topic]):
                if info.partitions:
                    self.wake(topic, waiter, info)
                elif info.error is not None and info.error in FINAL_ERRORS:
                    self.wake(topic, waiter, topic_error(topic, info.error))

    def wake(self, topic: str, waiter: Waiter, outcome: TopicInfo | ProducerError) -> None:
        """Wake *waiter* with *outcome*, which it raises if it is an error."""
        self.leave(topic, waiter)
        if not waiter.done():  # cancelled, and not run since
            waiter.set_result(outcome)

    def fail_all(self, error: Callable[[], ProducerError]) -> None:
        """Wake everybody, each with an *error* of its own."""
        for topic, waiters in tuple(self._waiters.items()):
            for waiter in tuple(waiters):
                self.wake(topic, waiter, error())


def topic_error(topic: str, kind: type[BrokerError]) -> BrokerError:
    """Return a new instance of what the last answer said about *topic*."""
    return kind(f"topic {topic!r}: {kind.__doc__ or kind.__name__}")
