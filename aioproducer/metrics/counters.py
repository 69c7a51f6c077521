"""What is counted, where it happens: per batch, request or connection, never per record; cheap enough to be always on.

Counters only grow. Rates and averages are worked out when somebody asks (`report`), from how much they have grown
lately: each `Tally` keeps what its numbers were when the present window of 30 s began, and when the one before did.
No timer turns the windows: who counts does, when one is over. So what is idle costs nothing, and whoever reads
changes nothing, and may do so from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, NamedTuple, Self, TypeAlias

from aioproducer.errors import BufferFull, BufferTimeout, ProducerError

WINDOW_S: Final = 30.0
"""As `metrics.sample.window.ms`; with the two of `metrics.num.samples`, "lately" is the last 30 to 60 s."""

ROWS: Final = 8
"""So many rows are summed up together. With 64 a batch would cost 0.8 µs less, and with thousands of topics several µs
more: each keeps up to that many, which the garbage collector looks at again and again.
"""

Row: TypeAlias = tuple[float, ...]
"""What is measured of one batch, or one request."""

Numbers: TypeAlias = dict[str, float]


class _Mark(NamedTuple):
    at: float
    numbers: Numbers


class Recent(NamedTuple):
    """What a tally has counted lately."""

    span_s: float
    """In how much time: at least a window, also for what is younger, so that a rate never comes of one moment."""
    numbers: Numbers
    """By how much each number has grown, and the maxima of that time."""
    totals: Numbers
    """The numbers themselves."""


class Tally:
    """Numbers that only grow, and maxima.

    Some are attributes, those of a subclass: whoever adds to one that there is a rate of does so by way of `at`, or
    calls `turn` before, if `window_ends_at` has passed.
    Others are columns of rows, given to `add`. Rows are kept until there are many: their sums then take a call per
    column, which is nothing, while to add up each number of each row would be seen in what a single `send` takes.
    """

    __slots__ = ("_before", "_now", "_rows", "_summed", "window_ends_at")
    COLUMNS: ClassVar[tuple[str, ...]] = ()
    MAXIMA: ClassVar[tuple[str, ...]] = ()
    """The columns of which there is the maximum, too, as `…_max`: that of the present window."""

    def __init__(self, now: float) -> None:
        """Begin to count at *now*, in loop time."""
        for name in self.__slots__:
            setattr(self, name, 0)
        self._rows: list[Row] = []
        start: Numbers = dict.fromkeys(("rows", *self.COLUMNS, *map("{}_max".format, self.MAXIMA)), 0)
        # Replaced together: so no reader sees a row twice, or misses one.
        self._summed = (start, self._rows)
        self._before = self._now = _Mark(now, self.numbers())
        self.window_ends_at: float = now + WINDOW_S

    def add(self, row: Row, now: float) -> None:
        """Count a row of numbers, one for each of `COLUMNS`."""
        if now >= self.window_ends_at:
            self.turn(now)
        rows = self._rows
        rows.append(row)
        if len(rows) >= ROWS:
            self._keep(self._sums())

    def at(self, now: float) -> Self:
        """Return the tally, to be added to at *now*."""
        if now >= self.window_ends_at:
            self.turn(now)
        return self

    def numbers(self) -> Numbers:
        """Return all numbers; the number of rows, too."""
        return {name: getattr(self, name) for name in self.__slots__} | self._sums()

    def turn(self, now: float) -> None:
        """Begin a new window at *now*."""
        mark = _Mark(now, self.numbers())  # with the maxima of the window that ends
        no_maxima: Numbers = {f"{column}_max": 0 for column in self.MAXIMA}
        self._keep(self._sums() | no_maxima)
        if now >= self.window_ends_at + WINDOW_S:  # nothing of it is recent any more
            mark.numbers.update(no_maxima)
            self._before = mark
        else:
            self._before = self._now
        self._now = mark
        self.window_ends_at = now + WINDOW_S

    def recent(self, now: float) -> Recent:
        """Return what was counted in the last 30 to 60 s before *now* (somewhat more, if windows were turned late)."""
        numbers, before, mark = self.numbers(), self._before, self._now
        age_s = now - mark.at
        if age_s >= 2 * WINDOW_S:
            return Recent(WINDOW_S, dict.fromkeys(numbers, 0), numbers)
        start = before if age_s < WINDOW_S else mark
        grown = {name: number - start.numbers[name] for name, number in numbers.items()}
        for column in self.MAXIMA:
            name = f"{column}_max"
            grown[name] = max(numbers[name], mark.numbers[name]) if age_s < WINDOW_S else numbers[name]
        return Recent(max(now - start.at, WINDOW_S), grown, numbers)

    def _keep(self, sums: Numbers) -> None:
        self._rows = []
        self._summed = (sums, self._rows)

    def _sums(self) -> Numbers:
        sums, rows = self._summed
        rows = rows[:]  # the producer's thread may add to it
        if not rows:
            return sums
        columns = dict(zip(self.COLUMNS, zip(*rows, strict=True), strict=True))
        sums = sums | {name: sums[name] + sum(column) for name, column in columns.items()}
        sums["rows"] += len(rows)
        for name in self.MAXIMA:
            sums[f"{name}_max"] = max(sums[f"{name}_max"], *columns[name])
        return sums


class TopicTally(Tally):
    """The records of one topic. A row is a batch that was written, also if it was before: so Kafka counts "sent"."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("records", "bytes", "uncompressed", "queued_s", "requests")
    """Bytes are as sent, encoded and compressed. Before compression they are what appending counts with: some 2 %
    more than they were. A batch has waited *queued_s* since its first record came. Of its request it was the n-th
    part, so that these add up to requests.
    """
    MAXIMA: ClassVar[tuple[str, ...]] = ("bytes", "queued_s")

    __slots__ = (
        "delivered_batches",
        "delivered_bytes",
        "delivered_records",
        "delivered_uncompressed",
        "failed_records",
        "retried_records",
        "splits",
    )
    delivered_batches: int
    delivered_bytes: int
    delivered_records: int
    delivered_uncompressed: int
    failed_records: int
    retried_records: int
    splits: int


class NodeTally(Tally):
    """The traffic of one broker, or (ids below 0) of bootstrap addresses. A row is an answer to a produce request."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("latency_s", "throttle_ms")
    """How long it took, and how long the broker then wanted no requests (KIP-219)."""
    MAXIMA: ClassVar[tuple[str, ...]] = COLUMNS

    __slots__ = ("bytes_in", "bytes_out", "closed", "opened", "requests", "responses")
    bytes_in: int
    bytes_out: int
    closed: int
    opened: int
    requests: int
    responses: int


class CallTally(Tally):
    """The calls that came to nothing before they got to a batch, and those that waited."""

    __slots__ = ("exhausted", "flush_s", "refused_records")
    exhausted: int
    """Those of the refused that found no memory."""
    flush_s: float
    refused_records: int


class Metrics:
    """All that one producer counts."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """*clock* is that of the event loop."""
        self.clock: Final = clock
        self.topics: Final[dict[str, TopicTally]] = {}
        self.nodes: Final[dict[int, NodeTally]] = {}
        self.calls: Final = CallTally(clock())

    def topic(self, name: str) -> TopicTally:
        """Return the tally of topic *name*; for what there is a rate of, see `event`."""
        try:
            return self.topics[name]
        except KeyError:
            tally = self.topics[name] = TopicTally(self.clock())
            return tally

    def node(self, node_id: int) -> NodeTally:
        """Return the tally of a node, for its connections to keep: they turn its windows."""
        try:
            return self.nodes[node_id]
        except KeyError:
            tally = self.nodes[node_id] = NodeTally(self.clock())
            return tally

    def event(self, topic: str) -> TopicTally:
        """Return the tally of *topic*, to be added to now."""
        return self.topic(topic).at(self.clock())

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
