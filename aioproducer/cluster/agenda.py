"""What has to be asked for, and when: no I/O, and no clock of its own.

What is wanted is asked for at once, and while the answers do not help again after growing pauses (KIP-580). Each
topic has pauses of its own: one that nobody leads must not slow down the others. When one is asked for, all that
are wanted are asked for with it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from aioproducer.backoff import Backoff
from aioproducer.cluster.settings import MetadataSettings
from aioproducer.cluster.snapshot import Snapshot

SHORTEST_PAUSE_S: Final = 0.01
"""Not even a retry backoff of 0 makes this a busy loop."""


@dataclass(slots=True, eq=False)
class Pace:
    """When something may be asked for again; the first time that is at once."""

    fruitless: int = 0
    """How many answers in a row have not helped."""
    not_before: float = -inf

    def helped(self, now: float) -> None:
        """Start anew."""
        self.fruitless = 0
        self.not_before = now + SHORTEST_PAUSE_S

    def did_not_help(self, now: float, backoff: Backoff) -> None:
        """Pause; for longer than the last time if that pause is over."""
        if now >= self.not_before:
            self.fruitless += 1
        self.not_before = now + max(SHORTEST_PAUSE_S, backoff.delay_s(max(0, self.fruitless - 1)))


@dataclass(slots=True, eq=False, kw_only=True)
class Interest(Pace):
    """A topic in use."""

    last_used: float


class Plan(NamedTuple):
    """One request for metadata."""

    topics: tuple[str, ...]
    complete: bool
    """Whether these are all topics in use."""
    wanted: frozenset[str]
    """Those that somebody asked for; the rest of a complete request is only brought up to date with them."""


class Agenda:
    """The topics in use, and what is wanted of them. Arguments called *now* are in loop time, seconds."""

    def __init__(self, settings: MetadataSettings) -> None:
        self._settings = settings
        self._interests: dict[str, Interest] = {}
        self._wanted: dict[str, Interest] = {}
        self._all = Pace()
        self._all_wanted = True  # to begin with, the list of brokers
        self._expires_at = inf
        self._last_end = -inf

    def touch(self, topic: str, now: float) -> Interest:
        """Note that *topic* is in use."""
        interest = self._interests.get(topic)
        if interest is None:
            interest = self._interests[topic] = Interest(last_used=now)
        interest.last_used = now
        return interest

    def want(self, topic: str, now: float) -> None:
        """Ask for *topic* as soon as its pace allows; this is a use of it, too."""
        interest = self.touch(topic, now)
        if topic not in self._wanted:
            self._begin_anew_after_calm(interest, now)
            self._wanted[topic] = interest

    def want_all(self, now: float) -> None:
        """Ask for all topics in use, and the brokers."""
        if not self._all_wanted:
            self._begin_anew_after_calm(self._all, now)
            self._all_wanted = True

    def due_at(self) -> float:
        """Return when to ask next; infinity if only a new want makes that necessary."""
        all_at = self._all.not_before if self._all_wanted else max(self._all.not_before, self._expires_at)
        return min([all_at, *(interest.not_before for interest in self._wanted.values())])

    def begin(self, now: float) -> Plan:
        """Return what to ask for now. What is wanted from here on, this request does not answer."""
        wanted = frozenset(self._wanted)
        complete = self._all_wanted or now >= self._expires_at
        if complete:
            self._interests = {
                topic: interest
                for topic, interest in self._interests.items()
                if topic in wanted or not self._is_idle(interest, now)
            }
        self._wanted = {}
        self._all_wanted = False
        return Plan(tuple(self._interests if complete else wanted), complete, wanted)

    def answered(
        self, plan: Plan, before: Snapshot, after: Snapshot, waiting: Collection[str], now: float
    ) -> None:
        """Note what the answer to *plan* made of *before*; for the topics *waiting* that is not enough."""
        changed = after.changed_since(before)
        for topic in plan.topics:
            interest = self._interests[topic]
            info = after.topics.get(topic)
            if info is None or not info.partitions or topic in waiting:
                self._ask_again(topic, interest, now, wanted=topic in waiting)
            elif info.leaderless:
                if topic in changed:
                    interest.fruitless = 0
                self._ask_again(topic, interest, now, wanted=not self._is_idle(interest, now))
            elif topic in changed:
                interest.helped(now)
                if not before.knows(topic):
                    self._wanted.pop(topic, None)  # who wanted it since, wanted no more than this
            elif topic in plan.wanted:
                interest.did_not_help(now, self._settings.backoff)
        if plan.complete:
            self._expires_at = now + self._settings.max_age_s
            if after.version != before.version:
                self._all.helped(now)
            else:
                self._all.did_not_help(now, self._settings.backoff)
        self._last_end = now

    def failed(self, plan: Plan, now: float) -> None:
        """Note that there was no answer to *plan*: it is wanted still."""
        for topic in plan.wanted:
            self._ask_again(topic, self._interests[topic], now, wanted=True)
        if plan.complete:
            self._all.did_not_help(now, self._settings.backoff)
            self._all_wanted = True
        self._last_end = now

    def hurry(self) -> None:
        """Cut the pauses short, to the first and shortest: there is somebody new to ask."""
        at = self._last_end + max(SHORTEST_PAUSE_S, self._settings.backoff.initial_s)
        for pace in (self._all, *self._wanted.values()):
            pace.not_before = min(pace.not_before, at)

    def _ask_again(self, topic: str, interest: Interest, now: float, *, wanted: bool) -> None:
        interest.did_not_help(now, self._settings.backoff)
        if wanted:
            self._wanted[topic] = interest

    def _is_idle(self, interest: Interest, now: float) -> bool:
        return now - interest.last_used >= self._settings.max_idle_s

    def _begin_anew_after_calm(self, pace: Pace, now: float) -> None:
        if now > pace.not_before + self._settings.backoff.max_s:
            pace.fruitless = 0
