"""Schedule of metadata requests: their topics and times, without I/O and clock.

A wanted topic is requested immediately, and again after growing pauses while responses bring no change (KIP-580). Each
topic has its own pauses, so a topic without a leader does not delay other topics. A request contains all wanted topics.
"""

# ruff: noqa: I002 - typing would compile each annotation of a NamedTuple at every start

import random
from collections.abc import Callable, Collection
from functools import partial
from math import inf
from typing import Final, NamedTuple, TypeAlias

from aioproducer._core.acceleration import untracking
from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.metadata.snapshot import NO_EPOCH, MetadataSnapshot

SHORTEST_PAUSE_S: Final = 0.01
"""Minimum pause, in seconds, which prevents a busy loop at a retry backoff of 0."""
FAILOVER_S: Final = 3.5
"""Duration of unchanged responses, in seconds, after which pauses grow to `OUTAGE_PAUSE_S`; longer than a failover."""
OUTAGE_PAUSE_S: Final = 1.0
"""Minimum pause during an outage, in seconds: Kafka's default of `retry.backoff.max.ms`."""

Delay: TypeAlias = Callable[[int], float]
"""`Backoff.delay_s`: pause in seconds after the given number of earlier failures."""


class MetadataSettings(NamedTuple):
    """Settings of metadata requests; durations are in seconds."""

    bootstrap: tuple[Address, ...]
    """Bootstrap addresses, for the first request and when no known broker is reachable."""
    max_age_s: float
    """Maximum age of the last complete response."""
    max_idle_s: float
    """Idle time after which a topic is dropped."""
    backoff: Backoff
    """Pause before a request is repeated."""
    request_timeout_s: float
    """Maximum time of a request to any known broker."""
    rebootstrap: bool
    """True to use the bootstrap addresses again when no known broker is reachable (KIP-899)."""
    rebootstrap_trigger_s: float
    """Time without a response after which the bootstrap addresses are used again (KIP-1102)."""
    checks_cluster: bool = True
    """True to refuse brokers of another cluster (KIP-1242)."""
    allow_auto_create_topics: bool = True
    """True if a metadata request may create a topic, provided the cluster allows it."""


class RetryPauses:
    """Time of the next request, immediate at first, then after growing pauses."""

    __slots__ = ("not_before", "unchanged", "unchanged_since")

    def __init__(self) -> None:
        self.unchanged: int = 0
        """Number of consecutive requests without a change."""
        self.unchanged_since: float = -inf
        self.not_before: float = -inf

    def answered_changed(self, now: float) -> None:
        """Reset the pauses after a change."""
        self.unchanged = 0
        self.not_before = now + SHORTEST_PAUSE_S

    def failed(self, now: float, delay_s: Delay) -> None:
        """Pause after a request without a response. The pauses grow only if the previous pause is over."""
        if now >= self.not_before:
            if not self.unchanged:
                self.unchanged_since = now
            self.unchanged += 1
        self.not_before = now + max(SHORTEST_PAUSE_S, delay_s(max(0, self.unchanged - 1)))

    def answered_unchanged(self, now: float, delay_s: Delay) -> None:
        """Pause after a response without a change."""
        self.failed(now, delay_s)
        if self.unchanged and now - self.unchanged_since > FAILOVER_S:
            self.not_before = max(self.not_before, now + OUTAGE_PAUSE_S)


class TopicInUse(RetryPauses):
    """A topic in use."""

    __slots__ = ("last_used",)

    def __init__(self, last_used: float) -> None:
        super().__init__()
        self.last_used: float = last_used


_new_use: Final = untracking(TopicInUse)


class Refresh(NamedTuple):
    """Topics of one metadata request."""

    topics: tuple[str, ...]
    complete: bool
    """True if *topics* has all topics in use."""
    wanted: frozenset[str]
    """Wanted topics; a complete request refreshes the other topics in use as well."""


class RefreshSchedule:
    """Topics in use and wanted topics. *now* is the time (loop clock) in every method."""

    def __init__(self, settings: MetadataSettings) -> None:
        self._settings = settings
        self._in_use: dict[str, TopicInUse] = {}
        self._wanted: dict[str, TopicInUse] = {}
        self._all = RetryPauses()
        self._all_wanted = True  # the first request is for the list of brokers
        self._expires_at = inf
        self._last_end = -inf

    def mark_used(self, topic: str, now: float) -> TopicInUse:
        """Mark *topic* as used now."""
        in_use = self._in_use.get(topic)
        if in_use is None:
            in_use = self._in_use[topic] = _new_use(now)
        in_use.last_used = now
        return in_use

    def request(self, topic: str, now: float) -> bool:
        """Mark *topic* as used, and request *topic* after its pause; return True if *topic* was not wanted before."""
        in_use = self.mark_used(topic, now)
        if topic in self._wanted:
            return False
        self._reset_after_calm(in_use, now)
        self._wanted[topic] = in_use
        return True

    def request_all(self, now: float) -> bool:
        """Request all topics in use and the brokers; return True unless a request for all is already pending."""
        if self._all_wanted:
            return False
        self._all_wanted = True
        self._reset_after_calm(self._all, now)
        for topic, in_use in self._in_use.items():
            if topic not in self._wanted and not self._is_idle(in_use, now):
                self._reset_after_calm(in_use, now)
                self._wanted[topic] = in_use
        return True

    def due_at(self) -> float:
        """Return the time of the next request; infinity without a wanted topic."""
        if not self._all_wanted:
            all_at = max(self._all.not_before, self._expires_at)
        else:  # each wanted topic has its own pauses; without wanted topics, only the brokers are requested
            all_at = inf if self._wanted else self._all.not_before
        return min([all_at, *(in_use.not_before for in_use in self._wanted.values())])

    def begin(self, now: float) -> Refresh:
        """Return the next request. Topics wanted from now on belong to a later request."""
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
        """Record the response to *refresh*, which changed *before* to *after*; calls wait for the topics *waiting*."""
        changed = {each for each in after.changed if _is_change(each, before, after)}
        delay_s = self._draw_delay()
        for topic in refresh.topics:
            in_use = self._in_use[topic]
            known = after.knows(topic)
            if not known or topic in after.leaderless:
                if known and topic in changed:
                    in_use.unchanged = 0
                in_use.answered_unchanged(now, delay_s)
                if topic in waiting or (known and not self._is_idle(in_use, now)):
                    self._wanted[topic] = in_use
            elif topic in changed:
                in_use.answered_changed(now)
                if not before.knows(topic):
                    self._wanted.pop(topic, None)  # the response also serves requests since `begin`
            elif topic in refresh.wanted:
                in_use.answered_unchanged(now, delay_s)
        if refresh.complete:
            self._expires_at = now + self._settings.max_age_s
            if changed or after.brokers is not before.brokers:
                self._all.answered_changed(now)
            else:
                self._all.answered_unchanged(now, delay_s)
        self._last_end = now

    def failed(self, refresh: Refresh, now: float) -> None:
        """Record that *refresh* failed, so its topics stay wanted."""
        delay_s = self._draw_delay()
        for topic in refresh.wanted:
            in_use = self._wanted[topic] = self._in_use[topic]
            in_use.failed(now, delay_s)
        if refresh.complete:
            self._all.failed(now, delay_s)
            self._all_wanted = True
        self._last_end = now

    def shorten_pauses(self) -> None:
        """Shorten the pauses to the initial pause, because a new broker is connected.

        An outage may be over, so pauses stay below `OUTAGE_PAUSE_S` for another `FAILOVER_S`.
        """
        at = self._last_end + max(SHORTEST_PAUSE_S, self._settings.backoff.initial_s)
        for pauses in (self._all, *self._wanted.values()):
            pauses.not_before = min(pauses.not_before, at)
            pauses.unchanged_since = max(pauses.unchanged_since, at)

    def _draw_delay(self) -> Delay:
        """Return the backoff with one draw of its jitter: equal pauses that begin together end together."""
        return partial(self._settings.backoff.delay_s, draw=random.random())

    def _is_idle(self, in_use: TopicInUse, now: float) -> bool:
        return now - in_use.last_used >= self._settings.max_idle_s

    def _reset_after_calm(self, pauses: RetryPauses, now: float) -> None:
        if now > pauses.not_before + self._settings.backoff.max_s:
            pauses.unchanged = 0


def _is_change(topic: str, before: MetadataSnapshot, after: MetadataSnapshot) -> bool:
    """Return True if a response changed *topic*, apart from a leader epoch that a refusal had erased."""
    one, other = before.topics.get(topic), after.topics.get(topic)
    if one is None or other is None or len(one.partitions) != len(other.partitions):
        return True
    confirmed = tuple(
        new if old == new._replace(leader_epoch=NO_EPOCH) else old
        for old, new in zip(one.partitions, other.partitions, strict=True)
    )
    return one._replace(partitions=confirmed) != other
