"""A schedule of metadata requests: what to ask for, and at what time. No I/O, and no clock of its own.

What is wanted is asked for at once, and while the answers do not help again after growing pauses (KIP-580). Each
topic has pauses of its own: one that nobody leads must not slow down the others. When one is asked for, all that
are wanted are asked for with it.
"""

# ruff: noqa: I002 - else typing compiles each annotation of a NamedTuple, for which every process waits

import random
from collections.abc import Callable, Collection
from functools import partial
from math import inf
from typing import Final, NamedTuple, TypeAlias

from aioproducer._core.backoff import Backoff
from aioproducer._core.metadata.snapshot import NO_EPOCH, MetadataSnapshot
from aioproducer._core.net.address import Address

SHORTEST_PAUSE_S: Final = 0.01
"""Not even a retry backoff of 0 makes this a busy loop."""
FAILOVER_S: Final = 3.5
"""When brokers answer, but what they say has not helped for so long, this is an outage and no change of leaders…"""
OUTAGE_PAUSE_S: Final = 1.0
"""… and pauses become as long as this, Kafka's default for the longest, where the configured ones are shorter."""

Delay: TypeAlias = Callable[[int], float]
"""`Backoff.delay_s`: seconds to pause after failure number …, counted from 0."""


class MetadataSettings(NamedTuple):
    """Durations in seconds."""

    bootstrap: tuple[Address, ...]
    """Whom to ask first, and when no known broker can be reached."""
    max_age_s: float
    """Ask again when the last complete answer is this old."""
    max_idle_s: float
    """A topic that was not used for this long is forgotten."""
    backoff: Backoff
    """How long to wait before asking again for what the last answer did not tell."""
    request_timeout_s: float
    """How long an attempt to reach any known broker may take."""
    rebootstrap: bool
    """Whether to start over from the bootstrap addresses when no known broker can be reached (KIP-899)…"""
    rebootstrap_trigger_s: float
    """… or when none has answered for this long, or when one says so (KIP-1102)."""
    checks_cluster: bool = True
    """Whether brokers of another cluster are refused (KIP-1242)."""
    allow_auto_create_topics: bool = True
    """Whether asking for a topic may create it, if the cluster allows."""


class RetryPace:
    """When something may be asked for again; the first time that is at once."""

    __slots__ = ("fruitless", "fruitless_since", "not_before")

    def __init__(self) -> None:
        self.fruitless: int = 0
        """How many requests in a row have not helped."""
        self.fruitless_since: float = -inf
        self.not_before: float = -inf

    def helped(self, now: float) -> None:
        """Start anew."""
        self.fruitless = 0
        self.not_before = now + SHORTEST_PAUSE_S

    def failed(self, now: float, delay_s: Delay) -> None:
        """Pause after a request without an answer; for longer than the last time if that pause is over."""
        if now >= self.not_before:
            if not self.fruitless:
                self.fruitless_since = now
            self.fruitless += 1
        self.not_before = now + max(SHORTEST_PAUSE_S, delay_s(max(0, self.fruitless - 1)))

    def did_not_help(self, now: float, delay_s: Delay) -> None:
        """Pause after an answer that brought nothing."""
        self.failed(now, delay_s)
        if self.fruitless and now - self.fruitless_since > FAILOVER_S:
            self.not_before = max(self.not_before, now + OUTAGE_PAUSE_S)


class TopicInUse(RetryPace):
    """A topic in use."""

    __slots__ = ("last_used",)

    def __init__(self, last_used: float) -> None:
        super().__init__()
        self.last_used: float = last_used


class _Drawn(NamedTuple):
    at: float

    def uniform(self, a: float, b: float, /) -> float:
        return a + (b - a) * self.at


class Refresh(NamedTuple):
    """One request for metadata."""

    topics: tuple[str, ...]
    complete: bool
    """Whether these are all topics in use."""
    wanted: frozenset[str]
    """Those that somebody asked for; the rest of a complete request is only brought up to date with them."""


class RefreshSchedule:
    """The topics in use, and what is wanted of them. Arguments called *now* are in loop time, seconds."""

    def __init__(self, settings: MetadataSettings) -> None:
        self._settings = settings
        self._in_use: dict[str, TopicInUse] = {}
        self._wanted: dict[str, TopicInUse] = {}
        self._all = RetryPace()
        self._all_wanted = True  # to begin with, the list of brokers
        self._expires_at = inf
        self._last_end = -inf

    def touch(self, topic: str, now: float) -> TopicInUse:
        """Note that *topic* is in use."""
        in_use = self._in_use.get(topic)
        if in_use is None:
            in_use = self._in_use[topic] = TopicInUse(last_used=now)
        in_use.last_used = now
        return in_use

    def want(self, topic: str, now: float) -> bool:
        """Ask for *topic* as soon as its pace allows; this is a use of it, too. Return whether that is news."""
        in_use = self.touch(topic, now)
        if topic in self._wanted:
            return False
        self._begin_anew_after_calm(in_use, now)
        self._wanted[topic] = in_use
        return True

    def want_all(self, now: float) -> bool:
        """Ask for all topics in use, and the brokers. Return whether that is news."""
        if self._all_wanted:
            return False
        self._all_wanted = True
        self._begin_anew_after_calm(self._all, now)
        for topic, in_use in self._in_use.items():
            if topic not in self._wanted and not self._is_idle(in_use, now):
                self._begin_anew_after_calm(in_use, now)
                self._wanted[topic] = in_use
        return True

    def due_at(self) -> float:
        """Return when to ask next; infinity if only a new want makes that necessary."""
        if not self._all_wanted:
            all_at = max(self._all.not_before, self._expires_at)
        else:  # the topics have their paces; without any, it is the list of brokers that is asked for
            all_at = inf if self._wanted else self._all.not_before
        return min([all_at, *(in_use.not_before for in_use in self._wanted.values())])

    def begin(self, now: float) -> Refresh:
        """Return what to ask for now. What is wanted from here on, this request does not answer."""
        wanted = frozenset(self._wanted)
        complete = self._all_wanted or now >= self._expires_at
        if complete:
            self._in_use = {
                topic: in_use
                for topic, in_use in self._in_use.items()
                if topic in wanted or not self._is_idle(in_use, now)
            }
        self._wanted = {}
        self._all_wanted = False
        return Refresh(tuple(self._in_use if complete else wanted), complete, wanted)

    def answered(
        self,
        refresh: Refresh,
        before: MetadataSnapshot,
        after: MetadataSnapshot,
        waiting: Collection[str],
        now: float,
    ) -> None:
        """Note what the answer to *refresh* made of *before*; somebody still waits for the topics *waiting*."""
        changed = {each for each in after.changed if _is_news(each, before, after)}
        delay_s = self._draw_delay()
        for topic in refresh.topics:
            in_use = self._in_use[topic]
            known = after.knows(topic)
            if not known or topic in after.leaderless:
                if known and topic in changed:
                    in_use.fruitless = 0
                in_use.did_not_help(now, delay_s)
                if topic in waiting or (known and not self._is_idle(in_use, now)):
                    self._wanted[topic] = in_use
            elif topic in changed:
                in_use.helped(now)
                if not before.knows(topic):
                    self._wanted.pop(topic, None)  # who wanted it since, wanted no more than this
            elif topic in refresh.wanted:
                in_use.did_not_help(now, delay_s)
        if refresh.complete:
            self._expires_at = now + self._settings.max_age_s
            if changed or after.brokers is not before.brokers:
                self._all.helped(now)
            else:
                self._all.did_not_help(now, delay_s)
        self._last_end = now

    def failed(self, refresh: Refresh, now: float) -> None:
        """Note that there was no answer to *refresh*: it is wanted still."""
        delay_s = self._draw_delay()
        for topic in refresh.wanted:
            in_use = self._wanted[topic] = self._in_use[topic]
            in_use.failed(now, delay_s)
        if refresh.complete:
            self._all.failed(now, delay_s)
            self._all_wanted = True
        self._last_end = now

    def hurry(self) -> None:
        """Cut the pauses short, to the first and shortest: there is somebody new to ask.

        What was an outage may be one no more, so for a while they stay short.
        """
        at = self._last_end + max(SHORTEST_PAUSE_S, self._settings.backoff.initial_s)
        for pace in (self._all, *self._wanted.values()):
            pace.not_before = min(pace.not_before, at)
            pace.fruitless_since = max(pace.fruitless_since, at)

    def _draw_delay(self) -> Delay:
        """Return the backoff with one draw of its jitter: equal pauses that begin together end together."""
        return partial(self._settings.backoff.delay_s, rng=_Drawn(random.random()))

    def _is_idle(self, in_use: TopicInUse, now: float) -> bool:
        return now - in_use.last_used >= self._settings.max_idle_s

    def _begin_anew_after_calm(self, pace: RetryPace, now: float) -> None:
        if now > pace.not_before + self._settings.backoff.max_s:
            pace.fruitless = 0


def _is_news(topic: str, before: MetadataSnapshot, after: MetadataSnapshot) -> bool:
    """Whether an answer changed what was known of *topic* by more than the epoch of a leader that was in doubt."""
    one, other = before.topics.get(topic), after.topics.get(topic)
    if one is None or other is None or len(one.partitions) != len(other.partitions):
        return True
    confirmed = tuple(
        new if old == new._replace(leader_epoch=NO_EPOCH) else old
        for old, new in zip(one.partitions, other.partitions, strict=True)
    )
    return one._replace(partitions=confirmed) != other
