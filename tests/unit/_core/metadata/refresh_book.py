"""A refresh schedule that is used as by the updater."""

from __future__ import annotations

from collections.abc import Collection

from aioproducer._core.backoff import Backoff
from aioproducer._core.metadata.refresh_schedule import MetadataSettings, Refresh, RefreshSchedule
from aioproducer._core.metadata.snapshot import MetadataSnapshot
from aioproducer._core.protocol.metadata import MetadataResponseTopic
from tests.unit._core.metadata.answers import after

MAX_AGE_S = 300.0
MAX_IDLE_S = 60.0

BACKOFF = Backoff(0.1, 1.0, jitter=0.0)


def settings(backoff: Backoff, max_age_s: float) -> MetadataSettings:
    return MetadataSettings(
        bootstrap=(),
        max_age_s=max_age_s,
        max_idle_s=MAX_IDLE_S,
        backoff=backoff,
        request_timeout_s=30.0,
        rebootstrap=True,
        rebootstrap_trigger_s=300.0,
    )


class Book:
    """Schedule with its snapshot, and time under the test's control."""

    def __init__(self, backoff: Backoff = BACKOFF, max_age_s: float = MAX_AGE_S) -> None:
        self.schedule = RefreshSchedule(settings(backoff, max_age_s))
        self.snapshot = MetadataSnapshot()
        self.now = 100.0

    def bootstrapped(self) -> Book:
        self.ask()
        return self

    def knowing(self, *topics: MetadataResponseTopic) -> Book:
        """Book with *topics* known for a long time."""
        self.bootstrapped()
        for each in topics:
            self.want(str(each.name))
        self.ask(*topics)
        self.now += 30.0
        assert self.schedule.due_at() > self.now
        return self

    def want(self, *names: str) -> None:
        for name in names:
            self.schedule.request(name, self.now)

    def want_all(self) -> bool:
        return self.schedule.request_all(self.now)

    def begin(self) -> Refresh:
        return self.schedule.begin(self.now)

    def answer(self, refresh: Refresh, *topics: MetadataResponseTopic, waiting: Collection[str] = ()) -> None:
        before = self.snapshot
        self.snapshot = after(before, *topics, asked=refresh.topics, complete=refresh.complete, now=self.now)
        self.schedule.answered(refresh, before, self.snapshot, waiting, self.now)

    def ask(self, *topics: MetadataResponseTopic, waiting: Collection[str] = ()) -> Refresh:
        """Wait until it is time, if it ever is, ask, and have *topics* answered at once."""
        self.now = max(self.now, self.schedule.due_at())
        refresh = self.begin()
        self.answer(refresh, *topics, waiting=waiting)
        return refresh

    def fail(self) -> Refresh:
        self.now = max(self.now, self.schedule.due_at())
        refresh = self.begin()
        self.schedule.failed(refresh, self.now)
        return refresh

    @property
    def pause_s(self) -> float:
        """How long until the next request."""
        return self.schedule.due_at() - self.now

    @property
    def is_due(self) -> bool:
        return self.schedule.due_at() <= self.now
