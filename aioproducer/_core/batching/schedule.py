"""The schedule of the sender: ready partitions by leader, deadlines, join windows and latencies of nodes.

Every event that may make a partition ready offers its queue, so a wake-up of the sender checks offered queues only.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection
from itertools import count
from math import inf
from typing import Any, Final, Generic, TypeVar

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.idempotence import IdentityKeeper
from aioproducer._core.metadata.snapshot import NO_LEADER

T = TypeVar("T")

TICK_S = 0.1
"""Resolution of deadlines, in seconds: an item is due at its deadline or at most one tick later."""


class Deadlines(Generic[T]):
    """Ordered sets of items, one per tick of 100 ms, and a heap of the ticks in use.

    Nearly every batch is delivered long before its deadline, so `add` and `discard` have to be cheap.
    """

    __slots__ = ("_by_tick", "_ticks")

    def __init__(self) -> None:
        self._by_tick: dict[float, dict[T, None]] = {}
        self._ticks: list[float] = []

    def add(self, item: T, deadline: float) -> None:
        """Add *item*, due at *deadline*."""
        tick = -(-deadline // TICK_S)  # the deadline rounded up: math.ceil() costs twice as much
        items = self._by_tick.get(tick)
        if items is None:
            heapq.heappush(self._ticks, tick)  # an exception after this push leaves a tick without items
            self._by_tick[tick] = {item: None}
        else:
            items[item] = None

    def discard(self, item: T, deadline: float) -> None:
        """Remove *item*, added with *deadline*, if present."""
        items = self._by_tick.get(-(-deadline // TICK_S))
        if items is not None:
            items.pop(item, None)

    def discard_before_move(self, item: T, before: float, deadline: float) -> None:
        """Drop the entry of *item* at the old deadline *before*, after *item* was added with the new *deadline*."""
        if -before // TICK_S != -deadline // TICK_S:
            self.discard(item, before)

    def next_due(self) -> float:
        """Return the time at which the next item is due; infinity without items."""
        while self._ticks:
            tick = self._ticks[0]
            if self._by_tick.get(tick):
                return tick * TICK_S
            heapq.heappop(self._ticks)
            self._by_tick.pop(tick, None)
        return inf

    def take_due(self, now: float) -> list[T]:
        """Remove and return the items due at *now*, by tick, then in the order of their addition."""
        due: list[T] = []
        while self.next_due() <= now:
            due.extend(self._by_tick.pop(heapq.heappop(self._ticks)))
        return due


JOINS_FOR_S: Final = 1.0
"""Time in which records may join an open batch, in seconds; `linger_ms` if `linger_ms` is longer. All records of a batch
share the deadline of the oldest record, so the youngest record fails at most one such time before its own deadline."""


class JoinWindows:
    """Partitions with an open batch, ordered by the time of the next check. Appends read no clock."""

    __slots__ = ("_number", "_watched", "check_at", "lasts_s")

    def __init__(self, linger_s: float) -> None:
        self.lasts_s: float = max(JOINS_FOR_S, linger_s)
        """Length of a window, in seconds."""
        self._watched: list[tuple[float, int, PartitionQueue]] = []
        self._number = count()  # heap entries never compare queues
        self.check_at: float = inf
        """Time of the next check; infinity without a check."""

    def watch(self, queue: PartitionQueue, until: float) -> None:
        """Check the open batch of *queue* at *until*."""
        heapq.heappush(self._watched, (until, next(self._number), queue))
        self.check_at = self._watched[0][0]
        queue.is_watched = True

    def seal_old(self, now: float) -> float:
        """Seal open batches with an expired join window; return the time of the next check."""
        watched = self._watched
        while watched and watched[0][0] <= now:
            queue = heapq.heappop(watched)[2]
            queue.is_watched = False
            if (batch := queue.open) is None:
                continue
            if batch.joins_until <= now:
                queue.seal(batch)  # the linger of the batch is over, so the schedule has the queue
            else:
                self.watch(queue, batch.joins_until)
        self.check_at = watched[0][0] if watched else inf
        return self.check_at


SLOW_S: Final = 0.01
"""Delay from which a node counts as slow, in seconds: twice Kafka's linger."""
ESTIMATE_VALID_S: Final = 0.1
"""Validity of the estimate of an idle node, in seconds; after this time the node is tried again."""


class LatencyEstimate:
    """Delay estimate of a node, which processes one request per connection at a time."""

    __slots__ = ("_since", "_took_s", "_unanswered")

    def __init__(self) -> None:
        self._unanswered: deque[tuple[float, int]] = deque()
        """Send time of each unanswered request, and the number of unanswered requests at this time."""
        self._since: float = 0.0
        """Start of the present request: the send time, or the time of the last response."""
        self._took_s: float = 0.0
        """Service time of the last answered request, in seconds."""

    @property
    def is_idle(self) -> bool:
        """True if the node has answered all requests."""
        return not self._unanswered

    def sent(self, now: float) -> None:
        """Note one more request."""
        if not self._unanswered:
            self._since = now
        self._unanswered.append((now, len(self._unanswered) + 1))

    def answered(self, now: float) -> None:
        """Note that the oldest request is answered or lost. Requests in flight together share a long round trip."""
        sent_at, together = self._unanswered.popleft()
        took_s, share_s = now - self._since, (now - sent_at) / together
        self._took_s = took_s if took_s > share_s else share_s  # noqa: FURB136 - max() costs ten comparisons
        self._since = now

    def estimated_delay_s(self, now: float) -> float:
        """Return the delay of one more request: (requests + 1) × max(last service time, time on the present request)."""
        silent_s = now - self._since
        if self._unanswered:
            return (len(self._unanswered) + 1) * max(self._took_s, silent_s)
        return self._took_s if silent_s < ESTIMATE_VALID_S else 0.0


class BrokerLatencies(defaultdict[int, LatencyEstimate]):
    """Delay estimates by node id, and the nodes in the client's rack."""

    __slots__ = ("_time", "nearby")

    def __init__(self, time: Callable[[], float]) -> None:
        super().__init__(LatencyEstimate)
        self._time = time
        self.nearby: Collection[int] = ()
        """Nodes in the client's rack: preferred leaders for records without a key (KIP-1123). Empty: no preference."""

    def is_slow(self, node_id: int) -> bool:
        """Return True if one more request to the node would take longer than `SLOW_S`."""
        return self.estimated_delay_s(node_id) > SLOW_S

    def is_faster(self, one: int, other: int) -> bool:
        """Return True if node *one* would need less than half the time of the slow node *other*."""
        return 2 * self.estimated_delay_s(one) + SLOW_S < self.estimated_delay_s(other)

    def forget(self, brokers: Collection[int]) -> None:
        """Drop the estimates of nodes outside *brokers* without requests in flight."""
        for node_id in self.keys() - set(brokers):
            if self[node_id].is_idle:
                del self[node_id]

    def estimated_delay_s(self, node_id: int) -> float:
        """Return the estimated delay of one more request to a node, in seconds."""
        latency = self.get(node_id)
        return 0.0 if latency is None else latency.estimated_delay_s(self._time())


class Schedule:
    """Ready partitions per node, and partitions that wait for a linger, a backoff, a leader or an identity."""

    __slots__ = (
        "_identities",
        "_leaderless",
        "_lingering_for",
        "_number",
        "_ready",
        "_without_identity",
        "backing_off",
        "busy",
        "lingering",
        "new_leaderless",
        "waiting",
    )

    def __init__(self, identities: IdentityKeeper) -> None:
        self._leaderless: dict[PartitionQueue, None] = {}
        self.new_leaderless: set[str] = set()
        """Topics of queues that were offered without a leader since the last call of `take_new_leaderless`."""
        self._identities = identities
        self._without_identity: dict[PartitionQueue, None] = {}
        self._ready: dict[int, OrderedDict[PartitionQueue, None]] = {}
        self.waiting: dict[int, float] = {}
        """Nodes with ready partitions, each with the time since which a batch waits to be drained."""
        self.lingering: OrderedDict[Batch, tuple[float, PartitionQueue, int]] = OrderedDict()
        """End of the linger, queue and leader of each lingering batch, ordered by the end of the linger."""
        self._lingering_for: defaultdict[int, dict[Batch, PartitionQueue]] = defaultdict(dict)
        """Lingering batches by the leader of their partition at the start of the linger."""
        self.busy: set[int] = set()
        """Nodes with unanswered requests; the sender adds a node, and `mark_idle` removes it."""
        self.backing_off: list[tuple[float, int, PartitionQueue]] = []
        """Heap of the times at which queues are offered again."""
        self._number = count()  # heap entries never compare queues

    def linger(self, queue: PartitionQueue, batch: Batch, until: float) -> bool:
        """Start the linger of the open *batch* of *queue*; return True if no other batch lingers."""
        self.lingering[batch] = until, queue, queue.leader
        self._lingering_for[queue.leader][batch] = queue
        return len(self.lingering) == 1

    def mark_idle(self, node_id: int, now: float) -> None:
        """Note that node *node_id* has answered all requests, which ends adaptive lingers for this node."""
        self.busy.discard(node_id)
        if lingering := self._lingering_for.get(node_id):
            for batch, queue in tuple(lingering.items()):
                self.make_ready(batch, queue, now)

    def forget(self, batch: Batch) -> None:
        """Drop the linger of *batch*."""
        lingering = self.lingering.get(batch)
        if lingering is not None:
            self._lingering_for[lingering[2]].pop(batch, None)  # an interrupted call can be repeated
            del self.lingering[batch]

    def forget_nodes(self, brokers: Collection[int]) -> None:
        """Drop the empty containers of nodes outside *brokers*."""
        kept = set(brokers)
        by_node: dict[int, Any]
        for by_node in (self._ready, self._lingering_for):
            for node_id in by_node.keys() - kept:
                if not by_node[node_id]:
                    del by_node[node_id]

    def make_ready(self, batch: Batch, queue: PartitionQueue, now: float) -> None:
        """End the linger of *batch*, if it lingers, and offer its *queue*."""
        if batch in self.lingering:
            self.forget(batch)
        batch.mark_ready()
        self.offer(queue, now)

    def back_off(self, queue: PartitionQueue, until: float) -> None:
        """Offer *queue* again at *until*."""
        heapq.heappush(self.backing_off, (until, next(self._number), queue))

    def offer(self, queue: PartitionQueue, now: float) -> None:
        """Add *queue* to the ready queues if a batch may be sent; otherwise remove it."""
        if not isinstance(queue.next_batch(now), Batch):
            self._withdraw(queue)  # the batch of an earlier offer may have expired
            if queue.needs_identity and not self._identities.admits(queue.topic_partition):
                self._without_identity[queue] = None
                self._identities.want(queue.topic_partition)
        elif queue.leader == NO_LEADER:
            self._leaderless[queue] = None
            self.new_leaderless.add(queue.topic_partition.topic)
        elif queue.offered_to is None:
            queue.offered_to = queue.leader
            ready = self._ready.get(queue.leader)
            if ready is None:
                ready = self._ready[queue.leader] = OrderedDict()
            ready[queue] = None
            self.waiting.setdefault(queue.leader, now)

    def offer_again(self, queue: PartitionQueue, now: float) -> None:
        """Offer *queue*, whose last offer may have been interrupted by an exception."""
        self._withdraw(queue)
        self.offer(queue, now)

    def offer_all(self, queues: Collection[PartitionQueue], now: float) -> None:
        """Offer each of *queues*, whose leader has changed."""
        for queue in queues:
            self._leaderless.pop(queue, None)
            self._withdraw(queue)  # the old leader of the queue may never be drained again
            if queue.leader != NO_LEADER:
                may_go_at = queue.follow_leader(now)
                if may_go_at > now:
                    self.back_off(queue, may_go_at)
            self.offer(queue, now)

    def connected(self, node_id: int, retry_at: float) -> None:
        """Move retries that wait for a connection to node *node_id* forward to *retry_at*."""
        for _, _, queue in tuple(self.backing_off):
            if queue.leader == node_id and queue.retry_by(retry_at):
                self.back_off(queue, retry_at)

    def _withdraw(self, queue: PartitionQueue) -> None:
        if queue.offered_to is not None:
            ready = self._ready.get(queue.offered_to)
            if ready is not None:
                ready.pop(queue, None)
            if not ready:
                self.waiting.pop(queue.offered_to, None)
            queue.offered_to = None

    def identity_changed(self, now: float) -> None:
        """Offer the queues that waited for an identity."""
        waiting, self._without_identity = self._without_identity, {}
        for queue in waiting:
            self.offer(queue, now)

    def leaders_without_identity(self) -> set[int]:
        """Return the leaders of partitions that wait for an identity."""
        for queue in tuple(self._without_identity):
            if not queue.needs_identity:  # the batches of the queue have expired or failed
                del self._without_identity[queue]
        return {queue.leader for queue in self._without_identity} - {NO_LEADER}

    def take_new_leaderless(self) -> Collection[str]:
        """Return the topics with partitions that wait for a leader since the last call."""
        news, self.new_leaderless = self.new_leaderless, set()
        return news

    def leaderless_topics(self) -> set[str]:
        """Return the topics with partitions that wait for a leader."""
        for queue in tuple(self._leaderless):
            if queue.idle:  # the batches of the queue have expired
                del self._leaderless[queue]
        return {queue.topic_partition.topic for queue in self._leaderless}

    def suspicious_topics(self) -> set[str]:
        """Return the topics with a retry that waits because the node denied its leadership of the partition."""
        return {queue.topic_partition.topic for _, _, queue in self.backing_off if queue.suspects_leader}

    def collect(self, now: float, *, hurry: bool) -> None:
        """Offer queues whose linger or backoff is over; in a *hurry*, all lingers end."""
        lingering = self.lingering
        while lingering:
            batch, (until, queue, _node_id) = next(iter(lingering.items()))
            if until > now and not hurry:
                break
            self.make_ready(batch, queue, now)
        while self.backing_off and self.backing_off[0][0] <= now:
            self.offer(heapq.heappop(self.backing_off)[2], now)

    def next_due(self) -> float:
        """Return the time of the next `collect`; infinity without a linger or backoff."""
        lingers_until = next(iter(self.lingering.values()))[0] if self.lingering else inf
        return min(lingers_until, self.backing_off[0][0]) if self.backing_off else lingers_until

    def waiting_since(self, at: float) -> list[int]:
        """Return the ids of nodes that have had ready partitions, and no drain, since before *at*."""
        return [node_id for node_id, since in self.waiting.items() if since < at]

    def drain(self, node_id: int, now: float, max_bytes: int) -> list[Batch]:
        """Take at most one batch per partition of *node_id*, up to *max_bytes* in total, but at least one ready batch.

        A partition with more batches moves behind all ready partitions. Lingering batches that fit are taken as well.
        """
        batches: list[Batch] = []
        ready = self._ready.get(node_id)
        if not ready:
            return batches
        total = 0
        self.waiting[node_id] = now
        for _ in range(len(ready)):
            queue, _none = ready.popitem(False)  # `last` by position: a keyword costs as much as the call
            batch = queue.next_batch(now)
            if isinstance(batch, Batch):
                total += batch.bytes_to_send()
                if batches and total > max_bytes:
                    ready[queue] = None
                    ready.move_to_end(queue, last=False)
                    return batches
                queue.take(batch)
                batches.append(batch)
            queue.offered_to = None
            if queue.batches or queue.retrying:
                self.offer(queue, now)
        if batches and self._lingering_for[node_id]:
            self._take_along(node_id, now, batches, max_bytes - total)
        if not ready:
            del self.waiting[node_id]
        return batches

    def _take_along(self, node_id: int, now: float, batches: list[Batch], room: int) -> None:
        """Add lingering batches of other partitions of the node to *batches*, oldest first, up to *room* bytes."""
        taken, fitting = set(batches), []
        for batch, queue in self._lingering_for[node_id].items():
            if queue.leader == node_id and queue.batches[0] is batch and taken.isdisjoint(queue.in_flight):
                room -= batch.bytes_to_send()
                if room < 0:
                    break
                fitting.append((batch, queue))
        for batch, queue in fitting:
            self.forget(batch)
            batch.mark_ready()
            if queue.next_batch(now) is batch:
                queue.take(batch)
                batches.append(batch)
            if queue.batches or queue.retrying:
                self.offer(queue, now)
