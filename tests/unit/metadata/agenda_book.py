"""What the tests of the agenda need: an agenda that is kept as the refresher keeps it."""

from __future__ import annotations

from collections.abc import Collection

from aioproducer.backoff import Backoff
from aioproducer.metadata.agenda import Agenda, Plan
from aioproducer.metadata.settings import MetadataSettings
from aioproducer.metadata.snapshot import Snapshot
from aioproducer.protocol.metadata import MetadataResponseTopic
from tests.unit.metadata.answers import after

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
    """An agenda, the snapshot that belongs to it, and time that passes as the test says."""

    def __init__(self, backoff: Backoff = BACKOFF, max_age_s: float = MAX_AGE_S) -> None:
        self.agenda = Agenda(settings(backoff, max_age_s))
        self.snapshot = Snapshot()
        self.now = 100.0

    def bootstrapped(self) -> Book:
        self.ask()
        return self

    def knowing(self, *topics: MetadataResponseTopic) -> Book:
        """A book long after it was told of *topics*."""
        self.bootstrapped()
        for each in topics:
            self.want(str(each.name))
        self.ask(*topics)
        self.now += 30.0
        assert self.agenda.due_at() > self.now
        return self

    def want(self, *names: str) -> None:
        for name in names:
            self.agenda.want(name, self.now)

    def want_all(self) -> bool:
        return self.agenda.want_all(self.now)

    def begin(self) -> Plan:
        return self.agenda.begin(self.now)

    def answer(self, plan: Plan, *topics: MetadataResponseTopic, waiting: Collection[str] = ()) -> None:
        before = self.snapshot
        self.snapshot = after(before, *topics, asked=plan.topics, complete=plan.complete, now=self.now)
        self.agenda.answered(plan, before, self.snapshot, waiting, self.now)

    def ask(self, *topics: MetadataResponseTopic, waiting: Collection[str] = ()) -> Plan:
        """Wait until it is time, if it ever is, ask, and have *topics* answered at once."""
        self.now = max(self.now, self.agenda.due_at())
        plan = self.begin()
        self.answer(plan, *topics, waiting=waiting)
        return plan

    def fail(self) -> Plan:
        self.now = max(self.now, self.agenda.due_at())
        plan = self.begin()
        self.agenda.failed(plan, self.now)
        return plan

    @property
    def pause_s(self) -> float:
        """How long until the next request."""
        return self.agenda.due_at() - self.now

    @property
    def is_due(self) -> bool:
        return self.agenda.due_at() <= self.now
