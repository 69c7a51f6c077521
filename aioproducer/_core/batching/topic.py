"""Queues of a topic, the limits of their batches, and evidence of deleted partitions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from aioproducer._core.acceleration import TopicFields, untracking
from aioproducer._core.batching.admission import AppendLock, QueuedCall
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.schedule import BrokerLatencies
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.idempotence import IdentityKeeper
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer._core.records.columns import BATCH_OVERHEAD
from aioproducer._core.settings import BatchingSettings
from aioproducer.errors import UnknownTopicOrPartition
from aioproducer.types import TopicPartition

IMPROVING_STEP: Final = 0.005
"""Largest decrease of the estimated compression ratio per `IMPROVING_STEP_BYTES` that compressed better than estimated."""
IMPROVING_STEP_BYTES: Final = 16_384
"""Default batch size of the JVM client, whose CompressionRatioEstimator lowers its estimate once per batch."""
DETERIORATING_STEP: Final = 0.05
"""Smallest increase of the estimated compression ratio after a batch that compressed worse, as in the JVM client."""
RATE_MARGIN: Final = 1.05
"""Margin on the estimated compression ratio. A batch keeps its limits up to a ratio of `RATE_MARGIN` times the estimate.

The estimate falls by at most `RATE_MARGIN` per batch, so batches of alternating compressibility keep their limits.
"""
PROBE_TIMES: Final = 1.25
"""Size of a batch that tests for a raised limit, relative to the smallest refused size."""
CLOSE_ENOUGH: Final = 64
"""Fraction (1/n) of the smallest refused size at which the search for the largest size ends. A step may cost a refusal."""
TRIAL_S: Final = 1.0
"""Longest wait for the outcome of a trial before the next trial, in seconds. A half full trial batch tests no new size."""
MOST_TIMES: Final = 16
"""Maximum size of a batch before compression, relative to its limit as sent: later records may compress worse."""


class BatchLimits:
    """Sizes at which a topic's batches are ready, and full (KIP-782), in bytes before compression.

    The settings limit batches as sent, so with a codec the compression ratio is estimated from earlier batches.
    """

    __slots__ = (
        "_accepted",
        "_compresses",
        "_estimate",
        "_next_trial_at",
        "_refused",
        "_settings",
        "_tried_at",
        "cap",
        "capped_until",
        "full",
        "rate",
        "ready",
    )

    _next_trial_at: float
    """Earliest time of the next trial (loop clock); unset without a refusal."""

    def __init__(self, settings: BatchingSettings) -> None:
        self.ready: int = settings.batch_bytes
        """Size from which a batch is sent without lingering. Records still join the batch until it is sent or full."""
        self.full: int = settings.batch_max_bytes
        """Maximum size of a batch."""
        self.capped_until: float = math.inf
        self.rate: float = 1.0
        """Estimated ratio of the size as sent to the size before compression, with the margin."""
        self.cap: float = math.inf
        """Maximum size of a batch as sent, after the broker refused larger batches; infinity without a refusal."""
        self._accepted = 0
        """Largest size that the broker accepted."""
        self._refused: float = math.inf
        """Smallest size that the broker refused. One batch at a time tries a size between `_accepted` and `_refused`."""
        self._tried_at = math.inf
        """Time of the last trial (loop clock)."""
        self._estimate = 1.0
        self._compresses = False
        self._settings = settings

    def grown_limit(self, batch: Batch, size: int, joins_at: float) -> int:
        """Return the limit of *batch* for another *size* bytes; 0 if a call at the time *joins_at* may not join *batch*."""
        return min(batch.size + size, self.full) if joins_at <= batch.joins_until else 0

    def first_limit(self, now: float, is_next: bool) -> int:  # noqa: FBT001 - a name costs as much as the call
        """Return the limit of a batch opened at *now*: `ready`, or half of `ready` while the broker is busy (*is_next*)."""
        if self.cap < math.inf and now >= self._next_trial_at and (trial := self._trial(now)) > self.cap:
            self._tried_at, self._next_trial_at = now, now + TRIAL_S
            return int(min(trial, self._settings.batch_max_bytes) / self.rate)
        return self.ready // 2 if is_next else self.ready

    def next_limit(self, batch: Batch, size: int, joins_at: float) -> int:
        """Return the raised limit of *batch*, which lacks room for *size* bytes: four times its size, at least `ready` more.

        Each raise is a call in Python. Raising to four times takes 13 % fewer instructions than doubling (values of 1 KiB).
        """
        if batch.limit < self.ready >= batch.size + size:  # the first limit was half of `ready`
            return self.grown_limit(batch, self.ready - batch.size, joins_at)
        return self.grown_limit(batch, max(self.ready, size, 3 * batch.size), joins_at)

    def refused(self, batch: Batch, part: int, now: float) -> None:
        """Record the refusal of *batch* for its size; *part* is the size of its larger half."""
        size = self.counted(batch)
        if size <= self._accepted:  # the topic's limit was lowered
            self._accepted = 0
        if size <= self.cap:
            self.cap = max(self._accepted, size * part // batch.size)
        self._refused = min(self._refused, size)
        self.capped_until, self._next_trial_at = now + self._settings.batch_cap_s, 0.0
        self._set()

    def accepted(self, batch: Batch) -> bool:
        """Record that the broker accepted *batch*; return False once batches of every size may be sent again."""
        size = self.counted(batch)
        if size >= self._refused:
            if batch.created_at < self._tried_at:
                return True  # the batch is older than the refusal: another broker may allow more
            self._refused = math.inf
        self._accepted = max(self._accepted, size)
        if size > self.cap:
            self.cap, self._next_trial_at = size, 0.0
            if 2 * size >= self._settings.batch_max_bytes and math.isinf(self._refused):
                self.cap = self._tried_at = math.inf
                self._accepted = 0
            self._set()
        return self.cap < math.inf

    def counted(self, batch: Batch) -> int:
        """Return the size of *batch* to compare with `cap`: the size as sent with a codec, else the size as appended."""
        return len(batch.encoded or b"") if self._compresses else batch.size

    def _trial(self, now: float) -> float:
        """Return the size of the next trial: halfway to the smallest refused size, or at times a quarter above that size."""
        if math.isinf(self._refused):
            return 2 * self.cap
        if now >= self.capped_until:
            self.capped_until = now + self._settings.batch_cap_s
            return self._refused * PROBE_TIMES
        if 2 * self._accepted <= self.cap or self._refused - self.cap <= self._refused / CLOSE_ENOUGH:
            return 0  # no batch near `cap` was accepted yet, or `cap` is close enough to the refused size
        return (self.cap + self._refused) // 2

    def compressed(self, batch: Batch) -> None:
        """Update the estimated compression ratio from the encoded *batch*."""
        self._compresses = True
        rate = (len(batch.encoded or b"") - BATCH_OVERHEAD) / (batch.size - BATCH_OVERHEAD)
        step = DETERIORATING_STEP
        if rate <= self._estimate:
            most = self._estimate * (1 - 1 / RATE_MARGIN)
            step = -min(IMPROVING_STEP * max(1.0, batch.size / IMPROVING_STEP_BYTES), most)
        self._estimate = max(self._estimate + step, rate)
        self.rate = max(self._estimate * RATE_MARGIN, 1 / MOST_TIMES)
        self._set()

    def _set(self) -> None:
        self.ready = int(min(self._settings.batch_bytes, self.cap) / self.rate)
        self.full = int(min(self._settings.batch_max_bytes, self.cap) / self.rate)


_new_limits: Final = untracking(BatchLimits)

AGREE_S: Final = 5.0
"""Minimum time between the two responses that prove the deletion of a partition, in seconds."""


class MissingPartitions:
    """Consecutive metadata responses without the partitions that records wait for.

    One response does not prove a deletion, because a broker may lag behind. A deletion is proved by two responses with
    a new topic id, or by two responses of different brokers without topic ids, `AGREE_S` apart. Fewer partitions under
    an unchanged topic id always mean that the broker lags, because a topic never loses partitions.
    """

    __slots__ = ("_first_node", "_since", "are_deleted", "has_other_id", "has_same_id")

    has_same_id: bool
    """True if the answers have the topic id that the records were appended under; set before each `confirm`."""

    def __init__(self) -> None:
        self.has_other_id: bool = False
        """True if the answers have a topic id other than the topic id of the append."""
        self.are_deleted: bool = False
        """True once the evidence proves the deletion of the partitions."""
        self._since: float | None = None
        self._first_node = -1

    def confirm(self, node_id: int, now: float, *, is_only_broker: bool) -> bool:
        """Add an answer of *node_id* (below 0: unknown) to the evidence; return `are_deleted`."""
        if self._since is None:
            self._since = now
        agree = self.has_other_id or is_only_broker or 0 <= self._first_node != node_id >= 0
        if self._first_node < 0:
            self._first_node = node_id
        if agree and now >= self._since + AGREE_S and (self.has_other_id or not self.has_same_id):
            self.are_deleted = True
        return self.are_deleted


def failure_of_missing(where: TopicPartition, partitions: int, *, possibly_persisted: bool) -> Failure:
    """Return the failure of a batch for *where*, because the recreated topic has only *partitions* partitions."""
    those = "1 partition, 0" if partitions == 1 else f"{partitions} partitions, 0 to {partitions - 1}"
    text = f"{where}: no such partition, {where.topic!r} was recreated with {those}"
    return Failure(UnknownTopicOrPartition, text, possibly_persisted)


class _Queues(dict[int, PartitionQueue]):
    """Queues by partition, each created at its first access. Access to an existing queue runs no Python code."""

    __slots__ = ("_topic",)

    def __init__(self, topic: TopicQueues) -> None:
        self._topic = topic  # a bound method would be one more object per topic for the garbage collector

    def __missing__(self, partition: int) -> PartitionQueue:
        queue = self[partition] = self._topic.make_queue(partition)
        return queue


class TopicQueues(TopicFields):
    """The queues of a topic, and the sticky partition of its records without a key."""

    __slots__ = (
        "_has_several_leaders",
        "_identities",
        "_latencies",
        "_settings",
        "_stalled",
        "_sticky_from",
        "available",
        "awaiting_partition",
        "limits",
        "missing",
        "name",
        "pending_calls",
        "topic_id",
        "used_until",
    )

    def __init__(
        self,
        name: str,
        settings: BatchingSettings,
        identities: IdentityKeeper,
        latencies: BrokerLatencies,
        stalled: Callable[[], Collection[int]] | None = None,
    ) -> None:
        """*stalled* returns the nodes that keyless records avoid; None if the check is disabled."""
        self.name: str = name
        self.topic_id: bytes = NO_TOPIC_ID
        """Topic id (KIP-516). A changed id means that the topic was recreated."""
        self.leaders: Sequence[int] = ()
        """Node id of each partition's leader, or NO_LEADER. Empty while the topic is unknown."""
        self.available: Sequence[int] = ()
        """Partitions with a leader."""
        self.limits: BatchLimits = _new_limits(settings)
        """Size limits of the batches; lower than the settings after a broker has refused a batch for its size."""
        self.missing: MissingPartitions | None = None
        """Evidence of deleted partitions; None unless a queue has a partition that the cluster lacks."""
        self.append_lock: AppendLock = AppendLock()
        """Lock of the waiting calls. Other calls append only while no call holds the lock."""
        self.awaiting_partition: dict[QueuedCall, int] = {}
        """Calls that left the queue of the lock to wait for a missing partition, each with the partition."""
        self.pending_calls: dict[object, None] = {}  # the garbage collector tracks even an empty set
        """Pending calls, queued or not."""
        self.used_until: float = 0.0
        """Time up to which the metadata counts the topic as in use (loop clock)."""
        self.sticky: PartitionQueue | None = None
        """Queue of the sticky partition, or None before the first record without a key and partition."""
        self.by_partition: Mapping[int, PartitionQueue] = _Queues(self)
        """Existing queues by partition. `[]` creates a missing queue; `get` returns None for a missing queue."""
        self._settings = settings
        self._identities = identities
        self._stalled = stalled
        self._latencies = latencies
        self._has_several_leaders = False
        """True if several nodes lead the partitions, so one of them may respond sooner."""
        self._sticky_from = 0

    def __getitem__(self, partition: int) -> PartitionQueue:
        """Return the queue of *partition*, created for its first record."""
        return self.by_partition[partition]

    def make_queue(self, partition: int) -> PartitionQueue:
        """Return a new queue of *partition*; `by_partition` adds it."""
        queue = PartitionQueue(self.name, partition, self._settings, self._identities)
        queue.leader = self._leader(partition)
        return queue

    @property
    def idle(self) -> bool:
        """True if no call is pending and no partition has an unfinished batch."""
        return not self.pending_calls and all(queue.idle for queue in self.by_partition.values())

    @property
    def may_retire(self) -> bool:
        """True if the topic can be forgotten without losing sequences."""
        return self.idle and not any(
            queue.sequences.is_kept(self._identities) for queue in self.by_partition.values()
        )

    def update(self, leaders: Sequence[int], topic_id: bytes = NO_TOPIC_ID) -> list[PartitionQueue]:
        """Set leaders and topic id; return the queues whose leader changed, or all queues of a recreated topic.

        If a call waited for a partition that now exists, the call is queued again, or served, before any later call.
        """
        is_new = topic_id not in {NO_TOPIC_ID, self.topic_id}
        is_another = is_new and self.topic_id != NO_TOPIC_ID
        is_same = topic_id == self.topic_id != NO_TOPIC_ID
        if is_new:
            self.topic_id = topic_id
            for queue in self.by_partition.values():
                queue.sequences.forget_log(max((batch.order for batch in queue.in_flight), default=()))
                queue.reset_sequence_refusals()
        self.available = tuple([partition for partition, leader in enumerate(leaders) if leader != NO_LEADER])
        self._has_several_leaders = (
            self._settings.partitioning_is_adaptive and len(set(leaders) - {NO_LEADER}) > 1
        )
        self.leaders = leaders  # `leaders` is set last: a topic with leaders counts as known
        changed = []
        for partition, queue in self.by_partition.items():
            leader = self._leader(partition)
            if leader != queue.leader:
                queue.leader = leader
                queue.sequences.acknowledged_here = False
                queue.reset_sequence_refusals()
            elif not is_another:
                continue
            changed.append(queue)
        if self.sticky is not None and self.sticky.leader == NO_LEADER and self.available:
            self.switch()
        if self.by_partition:
            self._note_missing(is_same=is_same, is_another=is_another)
        there = [call for call, partition in self.awaiting_partition.items() if partition < len(leaders)]
        if there:
            for call in there:
                del self.awaiting_partition[call]
            self.append_lock.readmit(there)
        return changed

    def missing_queues(self) -> list[PartitionQueue]:
        """Return the queues of partitions that the cluster lacks."""
        count = len(self.leaders)
        return [queue for partition, queue in self.by_partition.items() if partition >= count]

    def _note_missing(self, *, is_same: bool, is_another: bool) -> None:
        if not self.leaders or not self.missing_queues():  # without leaders the whole topic is unknown
            self.missing = None
        else:
            if self.missing is None:
                self.missing = MissingPartitions()
            self.missing.has_other_id |= is_another
            self.missing.has_same_id = is_same

    def leave_cluster(self) -> None:
        """Continue in another cluster under another producer id, with new sequences for all batches."""
        for queue in self.by_partition.values():
            queue.leave_cluster()

    def retire(self) -> None:
        """Drop the state of the partitions of an `idle` topic, before the topic is forgotten."""
        for queue in self.by_partition.values():
            queue.sequences.retire(self._identities)

    def refused(self, batch: Batch, part: int, now: float) -> None:
        """Limit all batches, even open batches, after the refusal of *batch*; *part* is the size of its larger half."""
        self.limits.refused(batch, part, now)
        for queue in self.by_partition.values():
            if queue.open is not None:
                queue.open.set_limit(min(queue.open.limit, self.limits.full))

    def next_sticky(self, size: int) -> PartitionQueue:
        """Return the queue for a record of *size* bytes without a partition. The queue changes after each full batch (KIP-794).

        If the broker of the queue is slow and another broker would answer much sooner, the queue changes at once.
        """
        sticky = self.sticky
        if sticky is None or (
            sticky.taken_bytes() - self._sticky_from + size + BATCH_OVERHEAD > self.limits.ready
        ):
            return self.switch()
        if self._has_several_leaders and self._latencies.is_slow(sticky.leader):
            other = self._elsewhere()
            if self._is_faster(other, sticky.partition):
                return self._stick_to(other)
        return sticky

    def switch(self) -> PartitionQueue:
        """Choose the partition with a leader for the next records without a key, and return its queue."""
        return self._stick_to(self._elsewhere())

    def _stick_to(self, partition: int) -> PartitionQueue:
        self.sticky = self[partition]
        self._sticky_from = self.sticky.taken_bytes()
        return self.sticky

    def _elsewhere(self) -> int:
        """Return a random partition other than the sticky partition; adaptive: the better of two random partitions."""
        current = self.sticky.partition if self.sticky is not None else None
        # A topic without partitions was deleted while a call waited to append, and may be created again.
        candidates = self._choice() or range(len(self.leaders)) or (current or 0,)
        partition = _any_but(current, candidates)
        if self._settings.partitioning_is_adaptive:
            other = _any_but(partition, candidates)
            if self._has_several_leaders and self._is_faster(partition, other):
                return partition
            if self._has_several_leaders and self._is_faster(other, partition):
                return other
            if self._backlog(other) < self._backlog(partition):
                return other
        return partition

    def _is_faster(self, one: int, other: int) -> bool:
        """Return True if the leader of *one* would answer in less than half the time of the leader of *other*."""
        return self._latencies.is_faster(self._leader(one), self._leader(other))

    def _choice(self) -> Sequence[int]:
        """Return the partitions for records without a key.

        The choice leaves out partitions of stalled leaders, then partitions led outside the client's rack, unless none remain.
        """
        choice = self.available
        if self._stalled is not None and (stalled := self._stalled()):
            choice = [each for each in choice if self.leaders[each] not in stalled] or choice
        if nearby := self._latencies.nearby:
            choice = [each for each in choice if self.leaders[each] in nearby] or choice
        return choice

    def _backlog(self, partition: int) -> int:
        """Return the unacknowledged bytes of *partition*, in full batches."""
        queue = self.by_partition.get(partition)
        return 0 if queue is None else queue.backlog_bytes // max(1, self.limits.ready)

    def share(self, size: int) -> int:
        """Return the bytes per partition when *size* bytes without a partition are distributed: at least a full batch."""
        return max(self.limits.ready, size // max(1, len(self._choice())))

    def _leader(self, partition: int) -> int:
        # A recreated topic may have fewer partitions: records for missing partitions fail with the evidence in `missing`.
        return self.leaders[partition] if partition < len(self.leaders) else NO_LEADER


def _any_but(partition: int | None, candidates: Sequence[int]) -> int:
    """Return a random candidate other than *partition*; *partition* if it is the only candidate."""
    chosen = candidates[int(random.random() * len(candidates))]
    if chosen == partition and len(candidates) > 1:
        chosen = candidates[(candidates.index(chosen) + 1) % len(candidates)]
    return chosen
