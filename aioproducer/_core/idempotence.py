"""Idempotence: producer id and epochs, sequence numbers per partition, and the persistence of batches.

KIP-98 and KIP-360. Pure: no clock, no loop, no I/O. Sequences are consecutive per identity, from 0, and wrap at 2**31.
librdkafka calls the three states of `Persistence` NOT_PERSISTED, POSSIBLY_PERSISTED and PERSISTED.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple, TypeAlias

from aioproducer._core.acceleration import new_tuple, untracking
from aioproducer.errors import BrokerError, InvalidProducerEpoch, OutOfOrderSequenceNumber, UnknownProducerId
from aioproducer.types import TopicPartition

MAX_EPOCH = 2**15 - 1


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch. The broker keeps producer id, epoch and sequences per partition."""

    producer_id: int
    epoch: int


class IdentityKeeper:
    """The identity that partitions begin with. `current` is None while the producer needs a new producer id.

    A broker compares epochs within a partition only. A partition that needs the next epoch takes this epoch alone, and
    all other partitions keep their epoch. The JVM client bumps the epoch of the whole producer, so every partition of a
    JVM producer waits once for all its responses.
    """

    __slots__ = ("bumps_partitions", "current")

    @property
    def leaders_begin_at_zero(self) -> bool:
        """True if leaders without state of the identity accept only sequence 0 (KIP-890); False: any (KIP-360)."""
        return False

    def __init__(self, *, bumps_partitions: bool = True) -> None:
        self.bumps_partitions: bool = bumps_partitions
        """True if a partition may take the next epoch alone; a transaction has one epoch for all partitions."""
        self.current: ProducerIdentity | None = None

    def assign(self, producer_id: int, epoch: int) -> None:
        """Use the identity that InitProducerId returned."""
        self.current = ProducerIdentity(producer_id, epoch)

    def leave_cluster(self) -> None:
        """Drop the identity, because another cluster may have assigned the same producer id to another producer."""
        self.current = None

    def admits(self, where: TopicPartition) -> bool:
        """Return True if a new batch may be written to *where* now."""
        return self.current is not None

    def want(self, where: TopicPartition) -> None:
        """Request the admission of partition *where*, because a batch waits for the admission."""

    def request_epoch_bump(self) -> None:
        """Request the next epoch: a partition assigned a sequence that is missing in its log, or may be missing."""

    def keeps(self, identity: ProducerIdentity | None) -> bool:
        """Return True if the sequences under *identity* must be kept, because no later epoch can replace them."""
        return False

    def after(self, identity: ProducerIdentity) -> ProducerIdentity | None:
        """Return the identity of a partition that leaves *identity*; None before the producer has a new identity.

        The next epoch needs no request, as in the JVM client without transactions. After the last epoch the whole
        producer takes a new producer id.
        """
        current = self.current
        if current is None or current.producer_id != identity.producer_id:
            return current
        if identity.epoch == MAX_EPOCH:
            self.current = None
            return None
        return identity._replace(epoch=identity.epoch + 1)

    def begin_after(self, identity: ProducerIdentity) -> None:
        """Let partitions that begin from now on use a later epoch than *identity*."""
        later = self.after(identity)
        if later is not None and self.current is not None:
            self.current = max(self.current, later)


_SEQUENCES = 2**31
_new_untracked: Final = untracking(new_tuple)
_REMEMBERED: Final = 16
"""Upper bound of the number of batches, halves included, behind the oldest batch that is not settled."""

SEQUENCE_REFUSALS: Final = (OutOfOrderSequenceNumber, InvalidProducerEpoch, UnknownProducerId)
"""Errors of a leader that does not recognise the batch and refuses its sequence."""
REFUSALS_AS_PROOF: Final = 3
"""Number of consecutive sequence refusals that prove that the batch is not in the log."""


def add_to_sequence(sequence: int, count: int) -> int:
    """Return the sequence *count* records after *sequence*."""
    return (sequence + count) % _SEQUENCES


class BatchSequence(NamedTuple):
    """Identity and base sequence of a batch, by which the broker recognises a retry."""

    identity: ProducerIdentity
    base_sequence: int

    def after(self, count: int) -> BatchSequence:
        """Return the sequence *count* records after this sequence, under the same identity."""
        return self._replace(base_sequence=add_to_sequence(self.base_sequence, count))


Acknowledged: TypeAlias = tuple[tuple[int, ...], int, int]
"""An acknowledged batch: position in its partition, base offset, and end offset.

The base offset is -1 if the leader only recognised the batch. The end offset is the log's end behind the batch, or behind
an earlier batch that is forgotten; 0 if both ends are unknown. A plain tuple costs half of a NamedTuple.
"""


class PartitionSequences:
    """Identity of one partition and its next sequence.

    A partition changes its identity only while no batch holds a sequence (*unsettled*). The broker must answer every
    batch of the old epoch before the first batch of the new epoch, or the broker refuses the late batch as a zombie's.
    """

    __slots__ = (
        "_acknowledged",
        "_next",
        "_to_the_old_log",
        "acknowledged_here",
        "gap_at",
        "identity",
        "needs_epoch_bump",
    )

    _next: int
    """Next sequence; unset before the first identity."""

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None
        """Present identity; None before the first identity."""
        # The type is a tuple, because the garbage collector would visit the list of every partition.
        self._acknowledged: tuple[Acknowledged, ...] = ()
        self._to_the_old_log: tuple[int, ...] = ()
        """Position of the newest batch that was in flight when its log was deleted."""
        self.needs_epoch_bump: bool = False
        """True after the assignment of a sequence that is missing in the log, or may be missing."""
        self.gap_at: tuple[int, ...] | None = None
        """Position of the first batch whose sequence will never be in the log; None without a gap.

        No later batch of the same identity can be in the log, because the broker refuses gaps.
        """
        self.acknowledged_here: bool = False
        """True once the leader has acknowledged a batch under the present identity.

        Before the first acknowledgement, the leader accepts any sequence that arrives first (KIP-360), so no batch may
        follow a batch without a response. If the first batch is refused, for example while the topic is being created,
        the next batch would become the first, and the order would be lost.
        """

    def request_epoch_bump(self, place: tuple[int, ...], *, absent: bool) -> None:
        """Assign no sequence until all batches are settled, because the batch in *place* failed or was refused.

        *absent* is True if the batch is certainly not in the log.
        """
        self.needs_epoch_bump = True
        if absent:
            self.gap_at = min(place, self.gap_at or place)

    def behind_gap(self, order: tuple[int, ...]) -> bool:
        """Return True if the batch in place *order* is certainly not in the log, because of an earlier gap."""
        return self.gap_at is not None and self.gap_at < order

    def acknowledge(
        self,
        sequence: BatchSequence,
        order: tuple[int, ...],
        count: int,
        base_offset: int,
        alone: bool,  # noqa: FBT001 - a keyword costs as much as the call
    ) -> None:
        """Note that the leader has the batch in place *order* with *sequence* and *count* records.

        *alone* is True if no other batch holds a sequence, so that older acknowledgements are no longer needed.
        """
        identity = sequence[0]  # an index costs a fifth of unpacking a NamedTuple
        if identity == self.identity and order > self._to_the_old_log:
            self.acknowledged_here = True
            end_offset = 0 if base_offset < 0 else base_offset + count
            if alone:
                for other, other_base, other_end in self._acknowledged:
                    if other > order:
                        order, base_offset, end_offset = other, other_base, other_end or end_offset
                    else:
                        end_offset = end_offset or other_end
                self._acknowledged = ((order, base_offset, end_offset),)
            else:
                kept = self._acknowledged[1 - _REMEMBERED :]
                self._acknowledged = (*kept, (order, base_offset, end_offset))

    def confirms(self, order: tuple[int, ...], count: int) -> bool:
        """Return True if the batch in place *order*, with its *count* records, is in the log, because a later batch is.

        A broker leaves no gaps (KIP-98), unless it has forgotten the producer and accepts the first batch it receives.
        The log of a leader that has forgotten the producer has lost its end, and has no room for the batch between the
        acknowledged batches. The room begins at the end of the newest acknowledged batch before *order*: the end of an
        older acknowledged batch may lie behind the new end of the log.
        """
        before = [(at, end) for at, _, end in self._acknowledged if at < order and end]
        end = max(before)[1] if before else 0
        return any(at > order and (base < 0 or base >= end + count) for at, base, _ in self._acknowledged)

    def forget_log(self, in_flight: tuple[int, ...] = ()) -> None:
        """Note that the topic was recreated: its log is empty, and its leader accepts the first sequence that arrives.

        Responses for batches up to the place *in_flight* concern the old log.
        """
        self._to_the_old_log = in_flight
        self.acknowledged_here = False
        self._acknowledged = ()

    def leave_cluster(self) -> None:
        """Restart in another cluster under another producer id, after all batches with a sequence are settled."""
        self.identity = None
        self.forget_log()
        self.request_epoch_bump((0,), absent=True)  # (0,) is before all places

    def take_back(self, sequence: BatchSequence) -> None:
        """Reuse *sequence*, because the leader refused its batch and no later sequence was assigned."""
        self._next = sequence.base_sequence

    def retire(self, keeper: IdentityKeeper) -> None:
        """Drop the state of the partition; later writes to the partition must not begin at 0 under the same identity.

        The broker would take a batch at sequence 0 for a duplicate, and acknowledge the batch without storing it.
        """
        if self.identity is not None:
            keeper.begin_after(self.identity)

    def may_assign(self, keeper: IdentityKeeper, unsettled: Collection[object]) -> bool:
        """Return True if a new batch may get a sequence now; change a due identity if *unsettled* is empty.

        *unsettled* holds the batches with a sequence; passing a bool would cost another call.
        """
        if not keeper.bumps_partitions:
            return self._may_assign_as_all(keeper, unsettled)
        if self.needs_epoch_bump:
            if unsettled:
                return False
            self._begin(None if self.identity is None else keeper.after(self.identity))
            self.needs_epoch_bump, self.gap_at = False, None
        if keeper.current is None:
            return False
        identity = self.identity
        if identity is not keeper.current and (
            identity is None or identity.producer_id != keeper.current.producer_id
        ):
            if unsettled:
                return False
            self._begin(keeper.current)
        return True

    def _may_assign_as_all(self, keeper: IdentityKeeper, unsettled: Collection[object]) -> bool:
        """Variant of `may_assign` for one epoch of all partitions; a partition that needs the next epoch has to wait."""
        current = keeper.current
        if self.identity != current and not unsettled:
            self.needs_epoch_bump, self.gap_at = False, None
            self._begin(current)
            self.acknowledged_here = keeper.leaders_begin_at_zero  # only sequence 0 can be first
        return self.identity == current is not None and not self.needs_epoch_bump

    def is_kept(self, keeper: IdentityKeeper) -> bool:
        """Return True if the next sequence must not be 0, because the identity stays the same."""
        return keeper.keeps(self.identity)

    def _begin(self, identity: ProducerIdentity | None) -> None:
        self._next = 0
        self.acknowledged_here = False
        self._acknowledged = ()  # acknowledgements under another identity prove nothing
        self.identity = identity  # `identity` is set last, so that an interrupted call can be repeated

    def assign(self, count: int) -> BatchSequence:
        """Assign the next *count* sequences to a batch, directly after `may_assign` returned True."""
        if self.identity is None:
            raise AssertionError("assign() needs may_assign() to return True first")
        # The next lines replace BatchSequence(…) and add_to_sequence(…), whose frames would cost time per batch.
        sequence: BatchSequence = _new_untracked(BatchSequence, (self.identity, self._next))
        self._next = (self._next + count) % _SEQUENCES
        return sequence


class Persistence:
    """Persistence of one batch: the only record of attempts that may have reached the log.

    An attempt that may have reached the log leaves a doubt that a later refusal of another attempt does not remove.
    """

    # The defaults are class attributes: nearly every batch needs few writes, and an `__init__` costs more.
    attempt_is_out: bool = False
    """True while the batch is written and has no response."""
    in_doubt: bool = False
    """True if a finished attempt may be in the log. A batch in doubt keeps its sequence."""
    sequence_refusals: int = 0
    """Number of consecutive refusals of the sequence of the batch while the batch was the oldest without an outcome."""
    _remains_possible: bool = False
    half_of_possibly_persisted: bool = False
    """True for a part of a split batch that may be in the log as a whole; the leader does not recognise the part."""

    @property
    def possible(self) -> bool:
        """True if the batch may be in the log under its sequence, so that no other batch may get the sequence."""
        return self.in_doubt or self.attempt_is_out

    @property
    def possibly_persisted(self) -> bool:
        """Value for errors of the batch; it stays True after refusals, because restarted leaders may forget a batch."""
        return self.possible or self._remains_possible

    def written(self) -> None:
        """Note that the batch is written to a socket."""
        self.attempt_is_out = True

    def not_written(self) -> None:
        """Note that the batch was never written, because the request could not be encoded."""
        self.attempt_is_out = False

    def answered(self) -> None:
        """Note that the attempt has a response."""
        self.attempt_is_out = False

    def refused(self, kind: type[BrokerError], *, was_next: bool, newest: bool = True) -> None:
        """Note a response with an error of *kind*.

        *was_next*: no earlier batch of the partition keeps the leader from accepting this batch. *newest*: no later
        batch may be in the log, so a leader that has this batch recognises it.
        """
        self.attempt_is_out = False
        # A leader never recognises a half, so its refusal of a half proves nothing.
        if was_next and issubclass(kind, SEQUENCE_REFUSALS) and not self.half_of_possibly_persisted:
            self.sequence_refusals += 1
            if newest and self.sequence_refusals >= REFUSALS_AS_PROOF:
                self._accept_refusals()
        else:
            self.sequence_refusals = 0
        if not kind.definitely_refused:
            self.in_doubt = True

    def reset_sequence_refusals(self) -> None:
        """Reset the sequence refusals, because the partition has a new leader or a new log."""
        self.sequence_refusals = 0

    def connection_lost(self, *, reached_socket: bool) -> None:
        """Note that no response will arrive. *reached_socket*: bytes of the request may have been sent."""
        if self.attempt_is_out and reached_socket:
            self.in_doubt = True
        self.attempt_is_out = False
        self.sequence_refusals = 0

    def answer_not_understood(self) -> None:
        """Note a response that a bug of aioproducer left unprocessed, so that its content is unknown."""
        self.in_doubt = True

    def leave_log(self) -> None:
        """Note a change of the cluster: the new cluster lacks the batch, the old cluster may have it."""
        if self.possible:
            self._remains_possible = True
        self.in_doubt = self.half_of_possibly_persisted = False
        self.sequence_refusals = 0

    def ruled_out(self) -> None:
        """Note that the batch is certainly not in the log, because an earlier batch of its identity is missing (KIP-98)."""
        self.in_doubt = self.half_of_possibly_persisted = False

    def of_part(self, *, keeps_sequence: bool) -> Persistence:
        """Return the persistence of a part of the batch; *keeps_sequence*: the part keeps its share of the sequences."""
        part = Persistence()
        part.in_doubt = self.in_doubt
        part._remains_possible = self._remains_possible
        part.half_of_possibly_persisted = self.in_doubt and keeps_sequence
        return part

    def _accept_refusals(self) -> None:
        """Accept repeated refusals of the sequence of the oldest batch without an outcome as proof of the batch's absence.

        A leader checks for duplicates before it checks the sequence. A leader remembers five batches, and at most five
        follow the oldest batch that is not settled (PartitionQueue.next_batch), so the leader would recognise this
        batch. A leader restarted from its snapshot remembers only the last batch of each producer, and therefore
        receives the newest batch first. An earlier batch that failed, or that was lost with a log, causes the refusals.
        The JVM client accepts the first OUT_OF_ORDER_SEQUENCE_NUMBER or UNKNOWN_PRODUCER_ID for the next batch, and
        takes the next epoch (TransactionManager.canRetry; KIP-360); a first INVALID_PRODUCER_EPOCH fails the batch of a
        JVM client. aioproducer requires several refusals, because a wrong conclusion would write the batch twice.
        """
        if self.in_doubt:
            self.in_doubt = False
            self._remains_possible = True
