"""Faults of the cluster: rules that tests add, and their effect on requests.

    cluster.on("produce", topic="orders").answer(NotLeaderOrFollower)           # the next request
    cluster.on("produce", times=3).close(before_append=False)                   # appended, never acknowledged
    cluster.on("metadata", node=2, times=None).drop()                           # node 2 never responds
    cluster.on("produce", after=10).delay(0.5).answer(NotEnoughReplicas)        # the eleventh: late, and an error

A rule applies to requests of its kind: to `times` requests (None: to all), after the first `after` requests. For each
partition of a request the oldest matching rule applies, so rules for the same requests apply in turn, and rules for two
partitions may apply to one request. An error is returned for the partitions that the rule matches; other faults apply
to the whole request.

Faults happen before the broker serves the request. With `before_append=False` they happen between the append and the
response: the record is in the log, and the producer has no acknowledgement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from aioproducer._core.wire import BytesLike
from aioproducer.errors import BrokerError, broker_error

Rewrite = Callable[[bytes], bytes | Iterable[bytes]]


class Target(NamedTuple):
    """A partition or topic that a request names; (None, None) for requests without a topic."""

    topic: str | None = None
    partition: int | None = None


class Refused(Exception):
    """Raised to answer a request, or its part for one partition, with an error.

    *record_errors* has a message for each rejected record of a batch, by position (KIP-467).
    """

    def __init__(
        self, error: type[BrokerError], message: str = "", *, record_errors: Mapping[int, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code: int = error.code
        self.message: str = message or error.__name__
        self.record_errors: Mapping[int, str] = record_errors or {}


class CloseConnection(Exception):
    """Raised to close the connection instead of responding."""


class NoResponse(Exception):
    """Raised to keep the connection open without a response."""


@dataclass(slots=True)
class _Faults:
    """Faults of a rule before or after the append."""

    delay_s: float = 0.0
    error: type[BrokerError] | None = None
    record_errors: Mapping[int, str] = field(default_factory=dict)
    end: type[CloseConnection | NoResponse] | None = None

    def refuse(self) -> None:
        if self.error is not None:
            raise Refused(self.error, "injected by cluster.on()", record_errors=self.record_errors)


class Rule:
    """Faults for matching requests, made by `Cluster.on`. A rule without a fault only counts requests.

    The faults return the rule itself: `rule.delay(0.2).answer(NotEnoughReplicas)` combines two faults.
    """

    def __init__(
        self, request: str | None, target: Target, *, node: int | None, times: int | None, after: int
    ) -> None:
        if after < 0 or (times is not None and times < 1):
            raise ValueError(f"times={times} must be at least 1 or None, and after={after} not negative")
        self.hits: int = 0
        """Number of requests that the rule has applied to."""
        self.throttle_ms: int = 0
        self.rewrites: list[Rewrite] = []
        self.before: Final = _Faults()
        self.after: Final = _Faults()
        self._request, self._target, self._node = request, target, node
        self._times, self._to_pass = times, after
        self._removed = False
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def answer(
        self,
        error: type[BrokerError] | int,
        *,
        before_append: bool = True,
        record_errors: Mapping[int, str] | None = None,
    ) -> Self:
        """Respond with *error*, a class of `aioproducer.errors` or any code.

        *record_errors* are the messages for single records of a batch, by position.

        Raises: TypeError; ValueError: no response can have this code.
        """
        moment = self._faults(before_append=before_append)
        moment.error = _answerable(error)
        moment.record_errors = record_errors or {}
        return self

    def delay(self, s: float, *, before_append: bool = True) -> Self:
        """Delay the request and the later requests of its connection by *s* seconds. Raises: TypeError, ValueError."""
        _check_seconds(s)
        self._faults(before_append=before_append).delay_s = s
        return self

    def drop(self, *, before_append: bool = True) -> Self:
        """Never respond.

        Responses of a connection keep their order, so the connection sends no further response.
        """
        self._faults(before_append=before_append).end = NoResponse
        return self

    def close(self, *, before_append: bool = True) -> Self:
        """Close the connection instead of responding."""
        self._faults(before_append=before_append).end = CloseConnection
        return self

    def throttle(self, ms: int) -> Self:
        """Throttle the client for *ms* milliseconds; during this time the broker reads no request of the client (KIP-219)."""
        self.throttle_ms = ms
        return self

    def rewrite(self, change: Rewrite) -> Self:
        """Send the result of *change*, bytes or pieces of bytes, instead of the response frame with its length."""
        self.rewrites.append(change)
        return self

    def remove(self) -> None:
        """Remove the rule from the cluster."""
        self._removed = True

    async def happened(self, times: int = 1) -> None:
        """Wait, on any event loop, until the rule has applied to *times* requests; a rule applies when the request arrives."""
        waiting = _, hit = asyncio.get_running_loop(), asyncio.Event()
        self._waiting.add(waiting)
        try:
            while self.hits < times:
                await hit.wait()
                hit.clear()
        finally:
            self._waiting.discard(waiting)

    def is_spent(self) -> bool:
        """Return True if the rule applies to no more requests."""
        return self._removed or (self._times is not None and self.hits >= self._times)

    def only_counts(self) -> bool:
        """Return True if the rule has no fault and therefore never replaces another rule."""
        return not (self.throttle_ms or self.rewrites) and self.before == self.after == _Faults()

    def covers(self, target: Target) -> bool:
        """Return True if the rule matches *target*."""
        return all(mine in {None, theirs} for mine, theirs in zip(self._target, target, strict=True))

    def applies_to(self, request: str, node: int, targets: Iterable[Target]) -> bool:
        """Return True if the rule applies to this request; count the request against `after` if it only passes."""
        if self.is_spent() or self._request not in {None, request} or self._node not in {None, node}:
            return False
        if not any(map(self.covers, targets)):
            return False
        if self._to_pass:
            self._to_pass -= 1
            return False
        return True

    def hit(self) -> None:
        """Count a request, and wake the tasks in `happened`."""
        self.hits += 1
        here = asyncio.get_running_loop()
        for loop, hit in tuple(self._waiting):
            if loop is here:
                hit.set()
            else:  # the cluster runs on another thread
                with suppress(RuntimeError):  # the loop of the waiting task is closed
                    loop.call_soon_threadsafe(hit.set)

    def _faults(self, *, before_append: bool) -> _Faults:
        return self.before if before_append else self.after


def check_number(argument: str, number: object) -> None:
    """Raise TypeError unless *number* is an int. Without the check, many mistakes would fail later."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{argument} must be an int, not {number!r}")


def _check_seconds(s: object) -> None:
    if not isinstance(s, int | float):
        raise TypeError(f"a delay is a number of seconds, not {s!r}")
    if not s >= 0:
        raise ValueError(f"a delay is not negative: {s}")


def _answerable(error: object) -> type[BrokerError]:
    """Return the error class of *error*. Raises: TypeError, ValueError."""
    if isinstance(error, int) and not isinstance(error, bool):
        if not -(2**15) <= error < 2**15 or error == 0:
            raise ValueError(f"error codes are -32768 to 32767 without 0, which is success; not {error}")
        return broker_error(error)
    if isinstance(error, type) and issubclass(error, BrokerError) and error is not BrokerError:
        return error
    raise TypeError(
        "expected a class of aioproducer.errors that stands for an error code, such as NotLeaderOrFollower, "
        f"or a code as int; not {error!r}"
    )


class RequestFaults:
    """The rules that apply to one request, by target, or one error for all targets."""

    def __init__(self, rules: Mapping[Target, Rule], error: type[BrokerError] | None = None) -> None:
        self._error = error
        self._by_target = rules
        self._rules = set(rules.values())

    async def before(self) -> None:
        """Execute the faults before the append. Raises: CloseConnection, NoResponse."""
        await _execute([rule.before for rule in self._rules])

    async def after(self) -> None:
        """Execute the faults after the append. Raises: CloseConnection, NoResponse."""
        await _execute([rule.after for rule in self._rules])

    @contextmanager
    def around(self, topic: str | None = None, partition: int | None = None) -> Iterator[None]:
        """Raise Refused before or after the body, if a rule has an error for this target."""
        if self._error is not None:
            raise Refused(self._error)
        rule = self._by_target.get(Target(topic, partition))
        if rule is not None:
            rule.before.refuse()
        yield
        if rule is not None:
            rule.after.refuse()

    @property
    def throttle_ms(self) -> int:
        """Throttle time of the response, in milliseconds."""
        return max((rule.throttle_ms for rule in self._rules), default=0)

    def pieces(self, frame: BytesLike) -> Iterable[BytesLike]:
        """Return the pieces to write for *frame*."""
        pieces: Iterable[BytesLike] = (frame,)
        for rule in self._rules:
            for rewrite in rule.rewrites:
                changed = rewrite(b"".join(pieces))
                pieces = (changed,) if isinstance(changed, bytes | bytearray | memoryview) else changed
        return pieces


async def _execute(moments: Sequence[_Faults]) -> None:
    if delay_s := max((moment.delay_s for moment in moments), default=0.0):
        await asyncio.sleep(delay_s)
    for moment in moments:
        if moment.end is not None:
            raise moment.end


NO_FAULT = RequestFaults({})


class Script:
    """The rules of a cluster, oldest first."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> Rule:
        """Add and return *rule*."""
        self._rules.append(rule)
        return rule

    def faults_of(self, request: str, node: int, targets: Sequence[Target]) -> RequestFaults:
        """Return the faults of a request that names *targets*; count the request for their rules."""
        if not self._rules:
            return NO_FAULT
        named = targets or (Target(),)
        due = [rule for rule in self._rules if rule.applies_to(request, node, named)]
        counting = [rule for rule in due if rule.only_counts()]
        by_target = {
            target: rule
            for target in named
            for rule in reversed(due)  # the oldest matching rule is the last item
            if rule not in counting and rule.covers(target)
        }
        for rule in {*counting, *by_target.values()}:
            rule.hit()
        self._rules = [rule for rule in self._rules if not rule.is_spent()]
        return RequestFaults(by_target)
