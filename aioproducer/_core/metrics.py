"""Counters per topic, node and call, and their report under Kafka's names (with `_` for `-`; see docs/metrics.md).

Batches, requests and connections write counters. A record writes no counter, so counting is always on. Counters only grow.
`report` derives rates and averages from the growth since the last two windows of 30 s began. The writer begins a new
window, without a timer: an idle counter costs nothing, and a read by any thread changes nothing.

Source: https://kafka.apache.org/documentation/#producer_monitoring
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

from aioproducer._core.acceleration import untracking
from aioproducer.errors import BufferFull, BufferTimeout, ProducerError, TimeoutReason

WINDOW_S: Final = 30.0
"""Kafka's `metrics.sample.window.ms`; with two samples, "recent" means the last 30 to 60 s."""

Numbers: TypeAlias = dict[str, float]
TransactionCall: TypeAlias = Literal["init_s", "begin_s", "send_offsets_s", "commit_s", "abort_s"]
"""Names of the counters of the time spent in calls of transactions."""


class _Mark(NamedTuple):
    at: float
    numbers: Numbers


_new_mark: Final = untracking(_Mark)


class RecentCounters(NamedTuple):
    """Growth of counters in the last 30 to 60 s."""

    span_s: float
    """Duration of the growth, at least one window, so that a new counter has no extreme rate."""
    numbers: Numbers
    """Growth of each number, and the maxima, within `span_s`."""
    totals: Numbers
    """Totals since the start."""


class Counters:
    """Numbers that only grow, and the maxima of the present window, as attributes of a subclass.

    Before a write to a number with a rate, the writer calls `at`, or `begin_window` once `window_ends_at` has passed.
    """

    __slots__ = ("_before", "_now", "window_ends_at")
    MAXIMA: ClassVar[tuple[str, ...]]
    """Names that end with `_max`."""
    NOTHING: ClassVar[Numbers]
    """Zeros, shared by all instances, of which thousands may exist."""

    def __init_subclass__(cls) -> None:
        cls.NOTHING = dict.fromkeys(cls.__slots__, 0)
        cls.MAXIMA = tuple(name for name in cls.__slots__ if name.endswith("_max"))

    def __init__(self, now: float) -> None:
        """Start counting at *now* (loop clock)."""
        self._set_zero()
        self._before = self._now = _new_mark(now, self.NOTHING)
        self.window_ends_at: float = now + WINDOW_S

    def _set_zero(self) -> None:
        for name in self.NOTHING:
            setattr(self, name, 0)

    def at(self, now: float) -> Self:
        """Return the counters for a write at *now*."""
        if now >= self.window_ends_at:
            self.begin_window(now)
        return self

    def numbers(self) -> Numbers:
        """Return all numbers, and the maxima."""
        return {name: getattr(self, name) for name in self.__slots__}

    def begin_window(self, now: float) -> None:
        """Begin a new window: at the end of the last window, or at *now* if that end is more than a window ago."""
        numbers = self.numbers()  # the numbers include the maxima of the window that ends
        if now < self.window_ends_at + WINDOW_S:
            # No write has arrived since the end of the window, so the present numbers are the numbers at that end.
            self._before, self._now = self._now, _new_mark(self.window_ends_at, numbers)
        else:  # the last window is no longer recent
            numbers.update(dict.fromkeys(self.MAXIMA, 0))
            self._before = self._now = _new_mark(now, numbers)
        self.window_ends_at = self._now.at + WINDOW_S
        # The maxima are reset last: a reader in another thread may see a maximum twice, but must not miss it.
        for name in self.MAXIMA:
            setattr(self, name, 0)

    def recent(self, now: float) -> RecentCounters:
        """Return the growth in the last 30 to 60 s before *now*."""
        numbers, before, mark = self.numbers(), self._before, self._now
        age_s = now - mark.at
        if age_s >= 2 * WINDOW_S:
            return RecentCounters(WINDOW_S, dict.fromkeys(numbers, 0), numbers)
        start = before if age_s < WINDOW_S else mark
        grown = {name: number - start.numbers[name] for name, number in numbers.items()}
        for name in self.MAXIMA:
            grown[name] = max(numbers[name], mark.numbers[name]) if age_s < WINDOW_S else numbers[name]
        return RecentCounters(max(now - start.at, WINDOW_S), grown, numbers)

    def absorb(self, other: Self) -> None:
        """Add the totals of *other*, which no longer changes. The totals count as old, so rates and maxima stay."""
        totals = {name: 0 if name in self.MAXIMA else getattr(other, name) for name in self.__slots__}
        for name, number in totals.items():
            setattr(self, name, getattr(self, name) + number)
        self._before, self._now = (
            _new_mark(at, {name: number + totals[name] for name, number in numbers.items()})
            for at, numbers in (self._before, self._now)
        )


class TopicCounters(Counters):
    """The records of one topic."""

    batches: int
    bytes: int
    bytes_max: int
    delivered_batches: int
    delivered_bytes: int
    delivered_records: int
    delivered_s: float
    """Time from the first record of each batch to its acknowledgement, in seconds."""
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
    __slots__ = tuple(__annotations__)

    def _set_zero(self) -> None:
        # A loop would be slower, and thousands of topics may start at the same time.
        self.batches = self.bytes = self.bytes_max = self.records = self.requests = self.uncompressed = 0
        self.queued_s = self.queued_s_max = self.retried_records = self.failed_records = self.splits = 0
        self.delivered_batches = self.delivered_bytes = self.delivered_records = (
            self.delivered_uncompressed
        ) = 0
        self.delivered_s = self.delivered_s_max = 0

    def written(
        self, records: int, size: int, uncompressed: int, queued_s: float, share: float, now: float
    ) -> None:
        """Count a batch that was written; like Kafka's "sent", a retry counts again.

        *size* is the encoded and compressed size. *uncompressed* is the size that the append counted, some 2 % too high.
        *queued_s* is the time since the first record. *share* is 1 / (batches in the request), so that the shares of
        a request add up to 1.
        """
        if now >= self.window_ends_at:
            self.begin_window(now)
        self.batches += 1
        self.records += records
        self.bytes += size
        self.uncompressed += uncompressed
        self.queued_s += queued_s
        self.requests += share
        # max() would cost as much as all other lines of this method.
        if size > self.bytes_max:  # noqa: PLR1730
            self.bytes_max = size
        if queued_s > self.queued_s_max:  # noqa: PLR1730
            self.queued_s_max = queued_s


_new_topic_counters: Final = untracking(TopicCounters)


class NodeCounters(Counters):
    """Traffic of one broker, or of the bootstrap addresses (node id below 0)."""

    answers: int
    """Responses to produce requests; *responses* counts responses to all requests."""
    bytes_in: int
    bytes_out: int
    closed: int
    latency_s: float
    latency_s_max: float
    opened: int
    requests: int
    responses: int
    surplus_answers: int
    """Responses with surplus bytes; counted per node, so that a new connection does not log surplus bytes again."""
    throttle_ms: int
    throttle_ms_max: int
    __slots__ = tuple(__annotations__)

    def answered(self, latency_s: float, throttle_ms: int, now: float) -> None:
        """Count a response to a produce request after *latency_s*, with the broker's *throttle_ms* (KIP-219)."""
        if now >= self.window_ends_at:
            self.begin_window(now)
        self.answers += 1
        self.latency_s += latency_s
        if latency_s > self.latency_s_max:  # noqa: PLR1730 - max() costs more
            self.latency_s_max = latency_s
        if throttle_ms:
            self.throttle_ms += throttle_ms
            self.throttle_ms_max = max(self.throttle_ms_max, throttle_ms)


class CallCounters(Counters):
    """Calls that failed before their records were in a batch, and the time spent in other calls."""

    abort_s: float
    begin_s: float
    commit_s: float
    exhausted: int
    """Refused records that found no free memory."""
    flush_s: float
    init_s: float
    refused_records: int
    send_offsets_s: float
    __slots__ = tuple(__annotations__)


class Traffic(NamedTuple):
    """Totals of one producer since its start, or the difference of two totals."""

    retries: int = 0
    """Number of retried records."""
    throttle_ms: int = 0
    """Sum of the pauses that brokers requested, in milliseconds."""
    sent_bytes: int = 0
    """Size of the batches as sent, in bytes; a retry counts again."""
    plain_bytes: int = 0
    """Size of the sent batches before compression, in bytes."""

    def since(self, earlier: Traffic) -> Traffic:
        """Return the difference to *earlier*."""
        return Traffic(*(now - then for now, then in zip(self, earlier, strict=True)))


class Metrics:
    """All counters of one producer."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """*clock* is the clock of the event loop."""
        self.clock: Final = clock
        self.topics: Final = defaultdict[str, TopicCounters](lambda: _new_topic_counters(clock()))
        self.nodes: Final = defaultdict[int, NodeCounters](lambda: NodeCounters(clock()))
        self.forgotten_topics: Final = TopicCounters(clock())
        """Totals of dropped topics, so that the producer's totals never decrease."""
        self.forgotten_nodes: Final = NodeCounters(clock())
        self.lock: Final = Lock()
        """Held while counters are dropped, because reports run in any thread."""
        self.topic: Final = self.topics.__getitem__
        """Returns the counters of a topic; a write to a number with a rate uses `event` instead."""
        self.node: Final = self.nodes.__getitem__
        """Returns the counters of a node. Connections to the node keep the counters, and begin new windows."""
        self.calls: Final = CallCounters(clock())
        self.timeouts: Final = dict.fromkeys(TimeoutReason, 0)
        """Records that failed with DeliveryTimeout, by reason."""

    def event(self, topic: str) -> TopicCounters:
        """Return the counters of *topic* for a write now."""
        return self.topic(topic).at(self.clock())

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of *topic*, which has no batches left."""
        with self.lock:
            if (counters := self.topics.pop(topic, None)) is not None:
                self.forgotten_topics.absorb(counters)

    def forget_nodes(self, left: Iterable[int]) -> None:
        """Drop the counters of nodes that have *left* the cluster and have no open connection."""
        with self.lock:
            for node_id in left:
                self.forgotten_nodes.absorb(self.nodes.pop(node_id))

    def traffic(self) -> Traffic:
        """Return totals over all topics and nodes; any thread may call `traffic`."""
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
        """Count *count* records that failed with *error* before they were in a batch; ignore errors of usage."""
        if not isinstance(error, ProducerError):
            return
        calls = self.calls.at(self.clock())
        calls.refused_records += count
        if isinstance(error, (BufferFull, BufferTimeout)):
            calls.exhausted += count

    @contextmanager
    def timed(self, call: TransactionCall) -> Generator[None]:
        """Add the duration of the block to *call*, unless the block fails, as in the JVM client."""
        began_at = self.clock()
        yield
        setattr(self.calls, call, getattr(self.calls, call) + self.clock() - began_at)


Values: TypeAlias = dict[str, Any]
"""Metrics by name."""

MS: Final = 1_000

OF_TOPICS: Final = {
    "record_send": "records",
    "byte": "bytes",
    "record_retry": "retried_records",
    "record_error": "failed_records",
}
"""Prefixes of metrics with a `…_total` and a `…_rate`, and the counter of each prefix."""
OF_NODES: Final = {
    "request": "requests",
    "response": "responses",
    "outgoing_byte": "bytes_out",
    "incoming_byte": "bytes_in",
}
OF_TRANSACTIONS: Final = {
    "txn_init": "init_s",
    "txn_begin": "begin_s",
    "txn_send_offsets": "send_offsets_s",
    "txn_commit": "commit_s",
    "txn_abort": "abort_s",
}
"""Prefixes of metrics with a `…_time_ns_total`, and the counter of each prefix."""
OF_CONNECTIONS: Final = {"connection_creation": "opened", "connection_close": "closed"}
OUTCOMES: Final = {
    "records_delivered": "delivered_records",
    "batches_delivered": "delivered_batches",
    "bytes_delivered": "delivered_bytes",
    "bytes_before_compression": "delivered_uncompressed",
}
"""Metrics of acknowledged records. Kafka's "sent" counts retries again, so Kafka has no names for these metrics."""


class View:
    """Sums, rates, averages and maxima over several counters of one class."""

    def __init__(self, *recent: RecentCounters) -> None:
        self._recent = recent

    def total(self, name: str) -> float:
        """Return the total of *name* since the start."""
        return sum(recent.totals[name] for recent in self._recent)

    def rate(self, name: str) -> float:
        """Return the recent growth of *name* per second."""
        return sum((recent.numbers[name] / recent.span_s for recent in self._recent), start=0.0)

    def average(self, name: str, per: str, *, scale: float = 1) -> float | None:
        """Return the recent growth of *name* divided by the recent growth of *per*; None if *per* has not grown."""
        count = self._grown(per)
        return self._grown(name) / count * scale if count else None

    def maximum(self, name: str, of: str, *, scale: float = 1) -> float | None:
        """Return the recent maximum *name*; None if *of* has not grown."""
        if not self._grown(of):
            return None
        return max(recent.numbers[name] for recent in self._recent) * scale

    def totals_and_rates(self, names: Mapping[str, str]) -> Values:
        """Return total and rate of each of *names*."""
        totals = {f"{metric}_total": self.total(name) for metric, name in names.items()}
        return totals | {f"{metric}_rate": self.rate(name) for metric, name in names.items()}

    def _grown(self, name: str) -> float:
        return sum(recent.numbers[name] for recent in self._recent)


def report(metrics: Metrics, producer: Values, nodes: Mapping[int, Values]) -> dict[str, dict[Any, Any]]:
    """Return all metrics: the counters of *metrics*, and the present values of the *producer* and its *nodes*.

    Nodes that left the cluster count in the producer's totals only.
    """
    now = metrics.clock()
    # copy() is atomic, unlike tuple(….items()): `report` may run in another thread. Each counter is read once, because
    # thousands of topics may exist.
    with metrics.lock:
        topics, rest_of_topics = metrics.topics.copy(), metrics.forgotten_topics.recent(now)
        nodes_now, rest_of_nodes = metrics.nodes.copy(), metrics.forgotten_nodes.recent(now)
    of_topics = {name: counters.recent(now) for name, counters in topics.items()}
    of_nodes = {node_id: counters.recent(now) for node_id, counters in nodes_now.items()}
    every_topic = View(*of_topics.values(), rest_of_topics)
    every_node = View(*of_nodes.values(), rest_of_nodes)
    timeouts = {f"record_timeout_{reason}_total": count for reason, count in metrics.timeouts.items()}
    return {
        "producer": _of_producer(every_topic, every_node, View(metrics.calls.recent(now)))
        | timeouts
        | producer,
        "topics": {name: _of_topic(View(recent)) for name, recent in of_topics.items()},
        "nodes": {
            node_id: values | _of_node(View(of_nodes[node_id]) if node_id in of_nodes else View())
            for node_id, values in nodes.items()
        },
    }


def _of_topic(topic: View) -> Values:
    return {
        **topic.totals_and_rates(OF_TOPICS),
        "compression_rate": topic.average("bytes", "uncompressed"),
        **{metric: topic.total(name) for metric, name in OUTCOMES.items()},
    }


def _of_node(node: View) -> Values:
    return {
        **node.totals_and_rates(OF_NODES),
        "request_latency_avg": node.average("latency_s", "answers", scale=MS),
        "request_latency_max": node.maximum("latency_s_max", "answers", scale=MS),
    }


def _of_producer(topics: View, nodes: View, calls: View) -> Values:
    values = {
        **topics.totals_and_rates(OF_TOPICS | {"batch_split": "splits"}),
        "batch_size_avg": topics.average("bytes", "batches"),
        "batch_size_max": topics.maximum("bytes_max", "batches"),
        "compression_rate_avg": topics.average("bytes", "uncompressed"),
        "record_size_avg": topics.average("uncompressed", "records"),
        "record_queue_time_avg": topics.average("queued_s", "batches", scale=MS),
        "record_queue_time_max": topics.maximum("queued_s_max", "batches", scale=MS),
        "record_latency_avg": topics.average("delivered_s", "delivered_batches", scale=MS),
        "record_latency_max": topics.maximum("delivered_s_max", "delivered_batches", scale=MS),
        "records_per_request_avg": topics.average("records", "requests"),
        "produce_throttle_time_avg": nodes.average("throttle_ms", "answers"),
        "produce_throttle_time_max": nodes.maximum("throttle_ms_max", "answers"),
        **_of_node(nodes),
        **nodes.totals_and_rates(OF_CONNECTIONS),
        "connection_count": nodes.total("opened") - nodes.total("closed"),
        **calls.totals_and_rates({"buffer_exhausted": "exhausted"}),
        "flush_time_ns_total": round(calls.total("flush_s") * 1e9),
        **{
            f"{metric}_time_ns_total": round(calls.total(name) * 1e9)
            for metric, name in OF_TRANSACTIONS.items()
        },
        **{metric: topics.total(name) for metric, name in OUTCOMES.items()},
    }
    values["record_error_total"] += calls.total("refused_records")
    values["record_error_rate"] += calls.rate("refused_records")
    return values
