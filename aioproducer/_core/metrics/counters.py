"""Counters, kept per batch, request or connection, never per record: cheap enough to be always on.

Counters only grow. Rates and averages are worked out when somebody asks (`report`), from how much they have grown
lately: each `Tally` keeps what its numbers were when the present window of 30 s began, and when the one before did.
No timer turns the windows: who counts does, when one is over. So what is idle costs nothing, and whoever reads
changes nothing, and may do so from any thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from threading import Lock
from typing import ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

from aioproducer._core.collector import untracking
from aioproducer.errors import BufferFull, BufferTimeout, ProducerError, TimeoutReason

WINDOW_S: Final = 30.0
"""As `metrics.sample.window.ms`; with the two of `metrics.num.samples`, "lately" is the last 30 to 60 s."""

Numbers: TypeAlias = dict[str, float]
TransactionCall: TypeAlias = Literal["init_s", "begin_s", "send_offsets_s", "commit_s", "abort_s"]
"""The calls of transactions, by the numbers that say how long they took."""


class _Mark(NamedTuple):
    at: float
    numbers: Numbers


_new_mark: Final = untracking(_Mark)


class Recent(NamedTuple):
    """What a tally has counted lately."""

    span_s: float
    """In how much time: at least a window, also for what is younger, so that a rate never comes of one moment."""
    numbers: Numbers
    """By how much each number has grown, and the maxima of that time."""
    totals: Numbers
    """The numbers themselves."""


class Tally:
    """Numbers that only grow, and the maxima of the present window: the attributes of a subclass.

    Whoever adds to one that there is a rate of does so by way of `at`, or calls `begin_window` before, if `window_ends_at` has
    passed. Each number is added to where it is: rows that are kept and summed up later take longer, and with thousands
    of topics they are work for the garbage collector.
    """

    __slots__ = ("_before", "_now", "window_ends_at")
    MAXIMA: ClassVar[tuple[str, ...]] = ()
    NOTHING: ClassVar[Numbers]
    """What all begin with: there may be thousands."""

    def __init_subclass__(cls) -> None:
        cls.NOTHING = dict.fromkeys(cls.__slots__, 0)

    def __init__(self, now: float) -> None:
        """Begin to count at *now*, in loop time."""
        self._set_zero()
        self._before = self._now = _new_mark(now, self.NOTHING)
        self.window_ends_at: float = now + WINDOW_S

    def _set_zero(self) -> None:
        for name in self.NOTHING:
            setattr(self, name, 0)

    def at(self, now: float) -> Self:
        """Return the tally, to be added to at *now*."""
        if now >= self.window_ends_at:
            self.begin_window(now)
        return self

    def numbers(self) -> Numbers:
        """Return all numbers, and the maxima."""
        return {name: getattr(self, name) for name in self.__slots__}

    def begin_window(self, now: float) -> None:
        """Begin a new window: at the end of the last one, which it is not before, or at *now* if that is long ago."""
        numbers = self.numbers()  # with the maxima of the window that ends
        if now < self.window_ends_at + WINDOW_S:
            # Nobody has counted since the window ended: its numbers then are those of now.
            self._before, self._now = self._now, _new_mark(self.window_ends_at, numbers)
        else:  # nothing of it is recent any more
            numbers.update(dict.fromkeys(self.MAXIMA, 0))
            self._before = self._now = _new_mark(now, numbers)
        self.window_ends_at = self._now.at + WINDOW_S
        # Last: another thread may read, and should rather see a maximum twice than miss it.
        for name in self.MAXIMA:
            setattr(self, name, 0)

    def recent(self, now: float) -> Recent:
        """Return what was counted in the last 30 to 60 s before *now*."""
        numbers, before, mark = self.numbers(), self._before, self._now
        age_s = now - mark.at
        if age_s >= 2 * WINDOW_S:
            return Recent(WINDOW_S, dict.fromkeys(numbers, 0), numbers)
        start = before if age_s < WINDOW_S else mark
        grown = {name: number - start.numbers[name] for name, number in numbers.items()}
        for name in self.MAXIMA:
            grown[name] = max(numbers[name], mark.numbers[name]) if age_s < WINDOW_S else numbers[name]
        return Recent(max(now - start.at, WINDOW_S), grown, numbers)

    def absorb(self, other: Self) -> None:
        """Add the totals of *other*, which no longer changes. The totals count as old, so rates and maxima stay."""
        totals = {name: 0 if name in self.MAXIMA else getattr(other, name) for name in self.__slots__}
        for name, number in totals.items():
            setattr(self, name, getattr(self, name) + number)
        self._before, self._now = (
            _new_mark(at, {name: number + totals[name] for name, number in numbers.items()})
            for at, numbers in (self._before, self._now)
        )


class TopicTally(Tally):
    """The records of one topic."""

    __slots__ = (
        "batches",
        "bytes",
        "bytes_max",
        "delivered_batches",
        "delivered_bytes",
        "delivered_records",
        "delivered_s",
        "delivered_s_max",
        "delivered_uncompressed",
        "failed_records",
        "queued_s",
        "queued_s_max",
        "records",
        "requests",
        "retried_records",
        "splits",
        "uncompressed",
    )
    MAXIMA: ClassVar[tuple[str, ...]] = ("bytes_max", "delivered_s_max", "queued_s_max")
    batches: int
    bytes: int
    bytes_max: int
    delivered_batches: int
    delivered_bytes: int
    delivered_records: int
    delivered_s: float
    """From the first record of each batch to its acknowledgement."""
    delivered_s_max: float
    delivered_uncompressed: int
    failed_records: int
    queued_s: float
    queued_s_max: float
    records: int
    requests: float
    retried_records: int
    splits: int
    uncompressed: int

    def _set_zero(self) -> None:
        # Without a loop: there may be thousands of topics, which begin at the same time.
        self.batches = self.bytes = self.bytes_max = self.records = self.requests = self.uncompressed = 0
        self.queued_s = self.queued_s_max = self.retried_records = self.failed_records = self.splits = 0
        self.delivered_batches = self.delivered_bytes = self.delivered_records = (
            self.delivered_uncompressed
        ) = 0
        self.delivered_s = self.delivered_s_max = 0

    def written(
        self, records: int, size: int, uncompressed: int, queued_s: float, share: float, now: float
    ) -> None:
        """Count a batch that was written, also if it was before: so Kafka counts "sent".

        Its *size* is as sent, encoded and compressed. Before compression it is what appending counts with: some 2 %
        more than it was. It has waited *queued_s* since its first record came. Of its request it was that *share*, so
        that these add up to requests.
        """
        if now >= self.window_ends_at:
            self.begin_window(now)
        self.batches += 1
        self.records += records
        self.bytes += size
        self.uncompressed += uncompressed
        self.queued_s += queued_s
        self.requests += share
        # To call max() here would take as long as all the rest.
        if size > self.bytes_max:  # noqa: PLR1730
            self.bytes_max = size
        if queued_s > self.queued_s_max:  # noqa: PLR1730
            self.queued_s_max = queued_s


_new_topic_tally: Final = untracking(TopicTally)


class NodeTally(Tally):
    """The traffic of one broker, or (ids below 0) of bootstrap addresses."""

    __slots__ = (
        "answers",
        "bytes_in",
        "bytes_out",
        "closed",
        "latency_s",
        "latency_s_max",
        "opened",
        "requests",
        "responses",
        "surplus_answers",
        "throttle_ms",
        "throttle_ms_max",
    )
    MAXIMA: ClassVar[tuple[str, ...]] = ("latency_s_max", "throttle_ms_max")
    answers: int
    """To produce requests; *responses* are those to any."""
    bytes_in: int
    bytes_out: int
    closed: int
    latency_s: float
    latency_s_max: float
    opened: int
    requests: int
    responses: int
    surplus_answers: int
    """In which there was more than belongs there: kept here, so that a new connection does not tell of it again."""
    throttle_ms: int
    throttle_ms_max: int

    def answered(self, latency_s: float, throttle_ms: int, now: float) -> None:
        """Count the answer to a produce request.

        It took *latency_s*; for *throttle_ms* from now the broker wants no more of them, or an old one has held it back
        (KIP-219).
        """
        if now >= self.window_ends_at:
            self.begin_window(now)
        self.answers += 1
        self.latency_s += latency_s
        if latency_s > self.latency_s_max:  # noqa: PLR1730 - as above
            self.latency_s_max = latency_s
        if throttle_ms:
            self.throttle_ms += throttle_ms
            self.throttle_ms_max = max(self.throttle_ms_max, throttle_ms)


class CallTally(Tally):
    """The calls that came to nothing before they got to a batch, and those that waited."""

    __slots__ = (
        "abort_s",
        "begin_s",
        "commit_s",
        "exhausted",
        "flush_s",
        "init_s",
        "refused_records",
        "send_offsets_s",
    )
    abort_s: float
    begin_s: float
    commit_s: float
    exhausted: int
    """Those of the refused that found no memory."""
    flush_s: float
    init_s: float
    refused_records: int
    send_offsets_s: float


class Traffic(NamedTuple):
    """Totals of one producer since its start, or the difference of two totals."""

    retries: int = 0
    """Number of records that were sent again."""
    throttle_ms: int = 0
    """Sum of the pauses that brokers requested, in milliseconds."""
    sent_bytes: int = 0
    """Size of the batches as sent, in bytes; a batch that is sent again counts again."""
    plain_bytes: int = 0
    """Size of the sent batches before compression, in bytes."""

    def since(self, earlier: Traffic) -> Traffic:
        """Return the difference to *earlier*."""
        return Traffic(*(now - then for now, then in zip(self, earlier, strict=True)))


class Metrics:
    """All that one producer counts."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """*clock* is that of the event loop."""
        self.clock: Final = clock
        self.topics: Final = defaultdict[str, TopicTally](lambda: _new_topic_tally(clock()))
        self.nodes: Final = defaultdict[int, NodeTally](lambda: NodeTally(clock()))
        self.forgotten_topics: Final = TopicTally(clock())
        """Totals of dropped topics, so that the producer's totals never decrease."""
        self.forgotten_nodes: Final = NodeTally(clock())
        self.lock: Final = Lock()
        """Held while tallies move, because reports run in any thread."""
        self.topic: Final = self.topics.__getitem__
        """Returns the tally of a topic; for what there is a rate of, see `event`."""
        self.node: Final = self.nodes.__getitem__
        """Returns the tally of a node, for its connections to keep: they begin its windows."""
        self.calls: Final = CallTally(clock())
        self.timeouts: Final = dict.fromkeys(TimeoutReason, 0)
        """Records that failed with DeliveryTimeout, by reason."""

    def event(self, topic: str) -> TopicTally:
        """Return the tally of *topic*, to be added to now."""
        return self.topic(topic).at(self.clock())

    def forget_topic(self, topic: str) -> None:
        """Drop the tally of *topic*, which has no batches left."""
        with self.lock:
            if (tally := self.topics.pop(topic, None)) is not None:
                self.forgotten_topics.absorb(tally)

    def forget_nodes(self, left: Iterable[int]) -> None:
        """Drop the tallies of nodes that have *left* the cluster and have no open connection."""
        with self.lock:
            for node_id in left:
                self.forgotten_nodes.absorb(self.nodes.pop(node_id))

    def traffic(self) -> Traffic:
        """Return totals over all topics and nodes; any thread may call."""
        with self.lock:
            topics = [*self.topics.copy().values(), self.forgotten_topics]
            nodes = [*self.nodes.copy().values(), self.forgotten_nodes]
        return Traffic(
            sum(each.retried_records for each in topics),
            sum(each.throttle_ms for each in nodes),
            sum(each.bytes for each in topics),
            sum(each.uncompressed for each in topics),
        )

    def refused(self, count: int, error: BaseException) -> None:
        """Count so many records that failed with *error* before they were in a batch; not those of wrong calls."""
        if not isinstance(error, ProducerError):
            return
        calls = self.calls.at(self.clock())
        calls.refused_records += count
        if isinstance(error, (BufferFull, BufferTimeout)):
            calls.exhausted += count

    def flushed(self, took_s: float) -> None:
        """Count a call of `flush` that has ended."""
        self.calls.flush_s += took_s

    @contextmanager
    def timed(self, call: TransactionCall) -> Generator[None]:
        """Add what is done within to *call*, unless it fails: as the JVM client does."""
        began_at = self.clock()
        yield
        setattr(self.calls, call, getattr(self.calls, call) + self.clock() - began_at)
