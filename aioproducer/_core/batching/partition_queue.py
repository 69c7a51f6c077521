"""The queue of a partition: its batches in order, from append to outcome."""

from __future__ import annotations

from bisect import insort
from collections import deque
from itertools import takewhile
from operator import attrgetter
from typing import Final, Literal, TypeAlias

from aioproducer._core.acceleration import QueueFields, untracking
from aioproducer._core.batching.batch import Batch, Order
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.idempotence import REFUSALS_AS_PROOF, IdentityKeeper, PartitionSequences
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer._core.records.columns import BATCH_OVERHEAD
from aioproducer._core.settings import BatchingSettings
from aioproducer.errors import BrokerError, TimeoutReason
from aioproducer.types import TopicPartition

_by_order = attrgetter("order")
_BACKOFF = BatchState.BACKOFF  # a global, because every batch is compared with the state; see batch.py
_BACKING_OFF: Final = TimeoutReason.BACKING_OFF
_IN_FLIGHT_LIMIT: Final = TimeoutReason.IN_FLIGHT_LIMIT

SendObstacle: TypeAlias = Literal[
    TimeoutReason.BACKING_OFF,
    TimeoutReason.IN_FLIGHT_LIMIT,
    TimeoutReason.PRODUCER_ID,
    TimeoutReason.TRANSACTION,
]
"""Reasons for which the queue of a partition sends no batch now."""

PROMPT_RETRIES: Final = 10
"""Number of immediate retries at a new leader."""
MOVED_BACKOFF_S: Final = 0.1
"""Delay of later retries at a new leader, in seconds: brokers may disagree about the leader."""


_new_place, _new_sequences = untracking(TopicPartition), untracking(PartitionSequences)


class PartitionQueue(QueueFields):
    """The batches of one partition, in order, from append to answer. `retrying` precedes `batches`.

    A batch leaves `batches` only after all earlier batches have a sequence (idempotent) or an answer (plain).
    """

    __slots__ = (
        "_identities",
        "_is_idempotent",
        "_next_order",
        "_settings",
        "batches",
        "in_flight",
        "is_watched",
        "leader",
        "newest_lost_in_doubt",
        "numbered",
        "offered_to",
        "partition",
        "retrying",
        "sealed_bytes",
        "sequences",
        "topic_partition",
    )

    def __init__(
        self, topic: str, partition: int, settings: BatchingSettings, identities: IdentityKeeper
    ) -> None:
        self.partition: int = partition
        self.topic_partition: TopicPartition = _new_place(topic, partition)
        self.leader: int = NO_LEADER
        self.batches: deque[Batch] | tuple[Batch, ...] = ()
        """Batches without a sequence, the open batch last. The second batch turns the tuple into a deque of 616 bytes."""
        self.open: Batch | None = None
        self.is_watched: bool = False
        """True while the accumulator checks the age of `open`."""
        # `retrying` is a tuple, because the garbage collector would visit the empty lists of all partitions.
        self.retrying: tuple[Batch, ...] = ()
        """Batches in backoff, with their sequences, the oldest first."""
        self.in_flight: tuple[Batch, ...] = ()
        """Drained batches without an answer, the oldest first."""
        self.sealed_bytes: int = 0
        """Size of the records of all sealed batches, in bytes."""
        self.newest_lost_in_doubt: Order = ()
        """Position of the newest failed or split batch that may be in the log."""
        self.sequences: Final[PartitionSequences] = _new_sequences()
        self.numbered: int = 0
        """Number of batches that got a sequence."""
        self.offered_to: int | None = None
        """Node with this queue among its ready partitions, or None."""
        self._settings = settings
        # `_is_idempotent` is a copy: a NamedTuple field costs three times as much as an attribute (Python 3.11 to 3.13).
        self._is_idempotent = settings.idempotent
        self._identities = identities
        self._next_order = 0

    def __str__(self) -> str:
        """Return `topic-partition`, the form of Kafka's logs."""
        return str(self.topic_partition)

    def taken_bytes(self) -> int:
        """Return the estimated size of all records ever appended, in bytes."""
        return self.sealed_bytes + (self.open.size - BATCH_OVERHEAD if self.open is not None else 0)

    @property
    def backlog_bytes(self) -> int:
        """Size of the batches that wait to be sent or for a response, in bytes."""
        size = 0
        for line in (self.batches, self.retrying, self.in_flight):  # a generator costs twice as much as loops
            for batch in line:
                size += batch.size
        return size

    @property
    def idle(self) -> bool:
        """True if the queue has no batch. The schedule can ignore a queue whose `batches` and `retrying` are empty."""
        return not (self.batches or self.retrying or self.in_flight)

    @property
    def unsent(self) -> list[Batch]:
        """Batches that are not in flight, the oldest first."""
        return [*self.retrying, *self.batches]

    @property
    def oldest_unsettled(self) -> Batch | None:
        """Oldest batch that was sent and has no outcome, or None."""
        return min((line[0] for line in (self.in_flight, self.retrying) if line), key=_by_order, default=None)

    @property
    def must_probe_newest(self) -> bool:
        """True if the leader denies the oldest batch in doubt, so that newer batches are sent first."""
        if not self.retrying or self.retrying[0].persistence.sequence_refusals < REFUSALS_AS_PROOF:
            return False
        return self.retrying[0].persistence.in_doubt

    @property
    def before_gone(self) -> list[Batch]:
        """Batches to retry that are older than the newest failed batch that may be in the log."""
        return [each for each in self.retrying if each.order < self.newest_lost_in_doubt]

    def is_newest(self, batch: Batch) -> bool:
        """Return True if no batch behind *batch* may be in the log, according to the leader."""
        return (
            not self.is_confirmed(batch)
            and self.newest_lost_in_doubt <= batch.order
            and self._was_probed_after(batch)
        )

    def is_refused_without_proof(self, batch: Batch) -> bool:
        """True if the leader denies *batch* and all later batches, and may recognise only a failed batch."""
        persistence = batch.persistence
        if not persistence.in_doubt or persistence.sequence_refusals < REFUSALS_AS_PROOF:
            return False
        return self.newest_lost_in_doubt > batch.order and self._was_probed_after(batch)

    def _was_probed_after(self, batch: Batch) -> bool:
        """True if the leader was asked for all batches behind *batch*."""
        behind = (
            each for line in (self.retrying, self.in_flight) for each in line if each.order > batch.order
        )
        return not any(map(_may_be_known, behind))

    def is_confirmed(self, batch: Batch) -> bool:
        """Return True if *batch* must be in the log, because a later batch is in the log."""
        return self.sequences.confirms(batch.order, len(batch))

    def is_alone(self, batch: Batch) -> bool:
        """Return True if *batch* is in flight, and no other batch of the partition was sent without an outcome."""
        return self.in_flight == (batch,) and not self.retrying

    @property
    def suspects_leader(self) -> bool:
        """True if the next batch was refused by a broker that no longer leads the partition."""
        error = self.retrying[0].last_error if self.retrying else None
        return isinstance(error, BrokerError) and error.stale_metadata

    @property
    def needs_identity(self) -> bool:
        """True if the next batch is ready and needs a sequence."""
        return self._is_idempotent and not self.retrying and bool(self.batches) and self.batches[0].ready

    def add(self, batch: Batch) -> None:
        """Append *batch*, the new open batch."""
        self.open = batch
        if self.batches:
            self._as_deque().append(batch)
        else:
            self.batches = (batch,)

    def _as_deque(self) -> deque[Batch]:
        if not isinstance(self.batches, deque):
            self.batches = deque(self.batches)
        return self.batches

    def next_order(self) -> Order:
        """Return the position of a new batch, behind all earlier batches."""
        self._next_order += 1
        return (self._next_order,)

    def next_batch(self, now: float) -> Batch | SendObstacle | None:  # noqa: PLR0911 - one per reason
        """Return the batch to send next, or the reason why no batch may be sent now; None if no batch is ready.

        Every event that ends a reason offers the queue to the schedule again.
        """
        if self.retrying:
            return self._next_retry(now)
        if not self.batches or not (batch := self.batches[0]).ready:
            return None
        in_flight = self.in_flight
        if not self._is_idempotent:
            # Two batches in flight could change places when the first batch fails.
            return _IN_FLIGHT_LIMIT if in_flight else batch
        if batch.retry_at > now:
            return _BACKING_OFF  # a leader refused the sequence of the batch
        if in_flight and self.numbered - in_flight[0].numbered_before >= self._settings.max_in_flight:
            # The broker remembers five batches per partition (KIP-98). The oldest batch in flight may need a retry, and
            # must then be among the five remembered batches, even if later batches are acknowledged.
            return _IN_FLIGHT_LIMIT
        identities, sequences = self._identities, self.sequences
        if not (identities.bumps_partitions or identities.admits(self.topic_partition)):
            return TimeoutReason.TRANSACTION
        # The partition nearly always continues under its identity: only a change of identity needs `may_assign`.
        continues = sequences.identity is identities.current is not None and not sequences.needs_epoch_bump
        if not continues and not sequences.may_assign(identities, in_flight):
            if in_flight:
                return _IN_FLIGHT_LIMIT
            return TimeoutReason.PRODUCER_ID if identities.bumps_partitions else TimeoutReason.TRANSACTION
        if in_flight and not sequences.acknowledged_here:
            return _IN_FLIGHT_LIMIT
        return batch

    def _next_retry(self, now: float) -> Batch | SendObstacle:
        batch = self.retrying[0]
        if batch.retry_at > now:
            return _BACKING_OFF
        if self.in_flight and (not self._is_idempotent or self.in_flight[0].order < batch.order):
            return _IN_FLIGHT_LIMIT  # one batch at a time until all batches are in order again
        return self._to_probe(now) if self.must_probe_newest else batch

    def _to_probe(self, now: float) -> Batch | SendObstacle:
        """Return the batch to send to a leader that denies the oldest batch in doubt: the newest batch first.

        A leader restarted from its snapshot remembers only the last batch. The acknowledgement of the last batch proves
        that all earlier batches are in the log.
        """
        oldest = self.retrying[0]
        if self.is_confirmed(oldest):
            return oldest
        if self.in_flight:
            return _IN_FLIGHT_LIMIT
        asked = next(filter(_may_be_known, reversed(self.retrying[1:])), oldest)
        return asked if asked.retry_at <= now else _BACKING_OFF

    def may_write(self, batch: Batch) -> bool:
        """Return True if *batch*, drained before its compression, still follows the earlier batches of the partition.

        Since the drain, the leader may have refused an earlier batch, or the topic may have been recreated. The leader of
        a new log would accept *batch* as its first batch, and the earlier batch would follow.
        """
        sequences, retrying = self.sequences, self.retrying
        if sequences.needs_epoch_bump and not self._keeps_sequence(batch):
            return False
        if retrying and retrying[0].order < batch.order and not self.must_probe_newest:
            return False
        earlier = self.in_flight[: self.in_flight.index(batch)]
        if not earlier:
            return True
        # A retried batch may have been drained meanwhile, and not be written yet.
        return sequences.acknowledged_here and all(each.persistence.attempt_is_out for each in earlier)

    def _keeps_sequence(self, batch: Batch) -> bool:
        """Return True if *batch* may be in the log under its sequence, which must stay the same."""
        return batch.persistence.in_doubt and not self.sequences.behind_gap(batch.order)

    def take(self, batch: Batch) -> None:
        """Move *batch*, just returned by `next_batch`, in flight, and assign a missing sequence."""
        alone: tuple[Batch, ...] = ()
        if batch.state is _BACKOFF:
            self.retrying = without(self.retrying, batch)
        else:
            batches = self.batches
            if len(batches) > 1:
                self._as_deque().popleft()
            else:
                self.batches = ()
                if isinstance(batches, tuple):
                    alone = batches  # the reused tuple saves the garbage collector an object
            self.seal(batch)
            if batch.withdrawn:
                batch.leave_out_withdrawn()
            if self._is_idempotent:
                batch.assign_sequence(self.sequences.assign(len(batch.columns)), self.numbered)
                self.numbered += 1
        batch.drain()
        self.in_flight = _with(self.in_flight, batch) if self.in_flight else alone or (batch,)

    def seal(self, batch: Batch) -> None:
        """Seal *batch*: no more records, no linger."""
        if self.open is batch:
            self.open = None
            self.sealed_bytes += batch.size - BATCH_OVERHEAD
        batch.seal()

    def may_go_at(self, batch: Batch, now: float) -> float:
        """Return the time of the retry of *batch* at a leader other than the node of the failure (KIP-951)."""
        return now if batch.retries < PROMPT_RETRIES else now + MOVED_BACKOFF_S

    def reset_sequence_refusals(self) -> None:
        """Reset the sequence refusals of batches in doubt, because the partition has a new leader or a new log."""
        for batch in self.retrying:
            batch.persistence.reset_sequence_refusals()

    def follow_leader(self, now: float) -> float:
        """Move retries forward for the new leader; return the time of the first retry."""
        backing_off = [*self.retrying, *takewhile(lambda batch: batch.retry_at > now, self.batches)]
        for batch in backing_off:
            batch.retry_by(self.may_go_at(batch, now))
        return min((batch.retry_at for batch in backing_off), default=now)

    def retry_by(self, at: float) -> bool:
        """Move retries after a lost connection forward to *at*; return True if any retry is earlier than before."""
        backing_off = [batch for batch in self.retrying if not isinstance(batch.last_error, BrokerError)]
        earlier = any(batch.retry_at > at for batch in backing_off)
        for batch in backing_off:
            batch.retry_by(at)
        return earlier

    def put_back(self, batch: Batch) -> None:
        """Insert *batch*, sealed and without a sequence, into `batches` by its position."""
        index = next(
            (i for i, other in enumerate(self.batches) if other.order > batch.order), len(self.batches)
        )
        self._as_deque().insert(index, batch)

    def retry(self, batch: Batch) -> None:
        """Insert *batch* into `retrying` by its position."""
        self.retrying = _with(self.retrying, batch)

    def note_gone(self, batch: Batch) -> None:
        """Note that *batch* is not sent again, so its persistence stays unknown."""
        if batch.persistence.possible:
            self.newest_lost_in_doubt = max(self.newest_lost_in_doubt, batch.order)

    def request_epoch_bump(self, batch: Batch) -> None:
        """Continue under a new identity, because *batch*, which held a sequence, has failed or was refused for its sequence."""
        self.note_gone(batch)
        self.sequences.request_epoch_bump(batch.order, absent=not batch.persistence.possible)
        self._identities.request_epoch_bump()
        self.renumber_retrying()

    def renumber_retrying(self) -> None:
        """Remove the sequences of `retrying` batches that are certainly not in the log: each removal leaves a gap.

        A broker without state of the identity would accept a batch with its old sequence before the earlier batches.
        """
        retrying, self.retrying = self.retrying, ()
        for batch in retrying:
            if self._keeps_sequence(batch):
                self.retrying += (batch,)
                continue
            self.sequences.request_epoch_bump(batch.order, absent=True)
            batch.persistence.ruled_out()
            batch.renumber()
            self.put_back(batch)
        if self.sequences.behind_gap(self.newest_lost_in_doubt):  # the loop may have found the gap
            self.newest_lost_in_doubt = ()

    def leave_cluster(self) -> None:
        """Continue in another cluster, whose logs have no batch and no sequence of this producer."""
        for batch in (*self.retrying, *self.in_flight):
            batch.persistence.leave_log()
        if self._is_idempotent:
            self.sequences.leave_cluster()
            self.renumber_retrying()

    def remove(self, batch: Batch) -> None:
        """Remove *batch* from the list of its state."""
        if batch.state in (BatchState.OPEN, BatchState.SEALED):
            self._as_deque().remove(batch)
            if self.open is batch:
                self.open = None
        elif batch.state is _BACKOFF:
            self.retrying = without(self.retrying, batch)
        else:
            self.in_flight = without(self.in_flight, batch)

    def recover(self) -> list[Batch]:
        """Complete or undo an append that an exception interrupted; return the batches that the append may have changed.

        Records without a waiter are dropped, a batch without records is removed, and the open batch is sealed.
        """
        suspects = [each for each in self.batches if each.state is not BatchState.SEALED or not each.ready]
        for batch in suspects:
            if batch.state is BatchState.OPEN:
                batch.repair()
            if len(batch):
                self.seal(batch)
            else:
                self.remove(batch)
        self.open = None
        return suspects

    def discard(self, batch: Batch) -> None:
        """Remove *batch* from every list, in any state."""
        if batch in self.batches:
            self._as_deque().remove(batch)
        if batch in self.retrying:
            self.retrying = without(self.retrying, batch)
        if batch in self.in_flight:
            self.in_flight = without(self.in_flight, batch)
        if self.open is batch:
            self.open = None


def without(batches: tuple[Batch, ...], batch: Batch) -> tuple[Batch, ...]:
    """Return *batches* without *batch*, a member of *batches*."""
    index = batches.index(batch)
    return batches[:index] + batches[index + 1 :]


def _with(batches: tuple[Batch, ...], batch: Batch) -> tuple[Batch, ...]:
    """Return the ordered *batches* with *batch* inserted."""
    line = list(batches)
    insort(line, batch, key=_by_order)
    return tuple(line)


def _may_be_known(batch: Batch) -> bool:
    """Return True if a leader may recognise *batch*, and has not denied it."""
    persistence = batch.persistence
    if persistence.sequence_refusals or persistence.half_of_possibly_persisted:
        return False
    return persistence.possible
