"""Sequence numbers of one partition (KIP-98), and the persistence of its batches. Pure: no clock, no loop, no I/O.

Sequences are consecutive per identity, from 0, wrapping at 2**31. librdkafka calls the three answers of `Persistence`
NOT_PERSISTED, POSSIBLY_PERSISTED and PERSISTED.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple, TypeAlias

from aioproducer._core.acceleration import new_tuple
from aioproducer._core.collector import untracking
from aioproducer._core.idempotence.identity import IdentityKeeper, ProducerIdentity
from aioproducer.errors import BrokerError, InvalidProducerEpoch, OutOfOrderSequenceNumber, UnknownProducerId

_SEQUENCES = 2**31
_new_untracked: Final = untracking(new_tuple)
_REMEMBERED: Final = 16
"""More than may follow the oldest batch that is not settled, halves of them included."""

SEQUENCE_REFUSALS: Final = (OutOfOrderSequenceNumber, InvalidProducerEpoch, UnknownProducerId)
"""Errors of a leader that does not know the batch and refuses its sequence."""
DENIALS_BELIEVED: Final = 3
"""Number of consecutive denials that prove that the batch is not in the log."""


def add_to_sequence(sequence: int, count: int) -> int:
    """Return the sequence *count* records after *sequence*."""
    return (sequence + count) % _SEQUENCES


class BatchSequence(NamedTuple):
    """What a batch carries so that the broker recognises it when it comes again."""

    identity: ProducerIdentity
    base_sequence: int

    def after(self, count: int) -> BatchSequence:
        """Return the sequence of the batch that begins *count* records later in the same range."""
        return self._replace(base_sequence=add_to_sequence(self.base_sequence, count))


Acknowledged: TypeAlias = tuple[tuple[int, ...], int, int]
"""An acknowledged batch: position in its partition, base offset, and end offset.

The base offset is -1 if the leader only recognised the batch. The end offset is the log's end behind the batch, or behind
an earlier batch that is forgotten; -1 if both are unknown. A plain tuple costs half of a NamedTuple.
"""


class PartitionSequences:
    """Which identity a partition writes under, and the next sequence.

    A partition changes its identity only while none of its batches holds a sequence (*unsettled*):
    the broker must have answered for everything under the old one before it sees the new one,
    or it would take a late batch of the old epoch for a zombie's.
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

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None
        """Present identity; None before the first."""
        self._next = 0
        self._acknowledged: tuple[
            Acknowledged, ...
        ] = ()  # the garbage collector would visit the lists of all partitions
        self._to_the_old_log: tuple[int, ...] = ()
        """The place of the newest batch that was on its way when its log was deleted."""
        self.needs_epoch_bump: bool = False
        """Whether a sequence was given out that will never be in the log, or may not be."""
        self.gap_at: tuple[int, ...] | None = None
        """The place, in the order of its partition, of the first batch whose sequence will never be in the log.

        Nothing behind it that got a sequence under the same identity can be: the broker refuses to leave a gap.
        """
        self.acknowledged_here: bool = False
        """Whether the leader has acknowledged something under the present identity.

        Until then it takes whatever sequence it sees first (KIP-360), and nothing may follow a batch that
        has no answer: if that one is refused, say because the topic is still being created, the next one
        would be the first, and the order be lost.
        """

    def request_epoch_bump(self, place: tuple[int, ...], *, absent: bool) -> None:
        """The batch in *place*, which held a sequence, is gone or was refused: give out none until all is settled.

        *absent* is whether it is surely not in the log.
        """
        self.needs_epoch_bump = True
        if absent:
            self.gap_at = min(place, self.gap_at or place)

    def behind_gap(self, order: tuple[int, ...]) -> bool:
        """Whether a batch in place *order* is surely not in the log, because one before it is not."""
        return self.gap_at is not None and self.gap_at < order

    def acknowledge(
        self,
        sequence: BatchSequence,
        order: tuple[int, ...],
        count: int,
        base_offset: int,
        alone: bool,  # noqa: FBT001 - a name costs as much as the call
    ) -> None:
        """The leader has the batch in place *order*, which carries *sequence*, with its *count* records.

        *alone* is whether nothing else has a sequence and no final answer: nobody will ask what those before it prove.
        """
        identity = sequence[0]  # an index costs a fifth of unpacking a NamedTuple
        if identity == self.identity and order > self._to_the_old_log:
            self.acknowledged_here = True
            end_offset = -1 if base_offset < 0 else base_offset + count
            acknowledged = self._acknowledged
            if alone:
                for other, other_base, other_end in acknowledged:
                    if other > order:
                        order, base_offset = other, other_base
                        end_offset = end_offset if other_end < 0 else other_end
                    elif end_offset < 0:
                        end_offset = other_end
                acknowledged = ()
            newest = (order, base_offset, end_offset)
            self._acknowledged = (*acknowledged[1 - _REMEMBERED :], newest) if acknowledged else (newest,)

    def proves(self, order: tuple[int, ...], count: int) -> bool:
        """Return True if the batch in place *order*, with its *count* records, is in the log, because a later batch is.

        A broker leaves no gaps (KIP-98), unless it has forgotten the producer and accepts the first batch it receives. The
        log has lost its end then, and between the acknowledged batches there is no room for the batch. The newest
        acknowledged batch before *order* has the end to compare with: an older one may have ended behind the log's new end.
        """
        before = [(at, end) for at, _, end in self._acknowledged if at < order and end >= 0]
        end = max(before)[1] if before else 0
        return any(at > order and (base < 0 or base >= end + count) for at, base, _ in self._acknowledged)

    def forget_log(self, in_flight: tuple[int, ...] = ()) -> None:
        """The topic was made anew: its log is empty, and its leader takes whatever sequence it sees first.

        What is told of batches up to the place *in_flight*, which are on their way, says nothing of the new log.
        """
        self._to_the_old_log = in_flight
        self.acknowledged_here = False
        self._acknowledged = ()

    def leave_cluster(self) -> None:
        """Restart in another cluster under another producer id, after all batches with a sequence are settled."""
        self.identity = None
        self.forget_log()
        self.request_epoch_bump((0,), absent=True)  # before all places

    def take_back(self, sequence: BatchSequence) -> None:
        """The leader refused the batch that carries *sequence*, and nothing was numbered since: begin there again."""
        self._next = sequence.base_sequence

    def retire(self, keeper: IdentityKeeper) -> None:
        """Forget where the partition was: who writes to it later may not begin at 0 under the same identity.

        The broker would take the batch for one that it has, and acknowledge it without storing it.
        """
        if self.identity is not None:
            keeper.begin_after(self.identity)

    def may_assign(self, keeper: IdentityKeeper, unsettled: Collection[object]) -> bool:
        """Whether a new batch may get a sequence now; moves on to a new identity when it is time, and nothing *unsettled*.

        *unsettled* are the batches that hold a sequence, as they are kept: to make a bool of them is another call.
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
        """Do as `may_assign` where the epoch is one for all partitions: nothing goes on that needs another one."""
        current = keeper.current
        if self.identity != current and not unsettled:
            self.needs_epoch_bump, self.gap_at = False, None
            self._begin(current)
            self.acknowledged_here = keeper.leaders_begin_at_zero  # then nothing can overtake the first batch
        return self.identity == current is not None and not self.needs_epoch_bump

    def is_kept(self, keeper: IdentityKeeper) -> bool:
        """Whether what comes next must not begin at 0, as the identity stays the same."""
        return keeper.keeps(self.identity)

    def _begin(self, identity: ProducerIdentity | None) -> None:
        self._next = 0
        self.acknowledged_here = False
        self._acknowledged = ()  # what was under another identity says nothing of this one
        self.identity = identity  # last, so that an interrupted call can be repeated

    def assign(self, count: int) -> BatchSequence:
        """Give the next *count* sequences to a batch; `may_assign` has just said yes."""
        if self.identity is None:
            raise AssertionError("assign() before may_assign() said yes")
        # As BatchSequence(…) and add_to_sequence(…), without their frames: every batch gets one.
        sequence: BatchSequence = _new_untracked(BatchSequence, (self.identity, self._next))
        self._next = (self._next + count) % _SEQUENCES
        return sequence


class Persistence:
    """Persistence of one batch: the only record of attempts that may have reached the log.

    An attempt that may have reached the log leaves a doubt that a later refusal of another attempt does not remove.
    """

    # On the class: nearly every batch is acknowledged at its first attempt, and an `__init__` costs more than its writes.
    _attempt_is_out: bool = False
    _in_doubt: bool = False
    _denials: int = 0
    _remains_possible: bool = False
    half_of_possibly_persisted: bool = False
    """True for a part of a batch that may be in the log whole; the leader does not recognise such a part."""

    @property
    def possible(self) -> bool:
        """Whether the batch may be in the log, as far as its sequence is concerned: nobody else may have that."""
        return self._in_doubt or self._attempt_is_out

    @property
    def possibly_persisted(self) -> bool:
        """Whether to say so where it fails. A leader may have forgotten what it has: to believe it is no promise."""
        return self.possible or self._remains_possible

    @property
    def in_doubt(self) -> bool:
        """Whether an attempt that is over may be in the log. A batch in doubt keeps its sequence."""
        return self._in_doubt

    @property
    def attempt_is_out(self) -> bool:
        """Whether the batch was handed to a socket, and its answer is still to come."""
        return self._attempt_is_out

    @property
    def denials(self) -> int:
        """How often in a row the leader has refused its sequence, while it was the oldest without an outcome."""
        return self._denials

    def written(self) -> None:
        """The batch is handed to a socket."""
        self._attempt_is_out = True

    def not_written(self) -> None:
        """It was not after all: the request could not be made."""
        self._attempt_is_out = False

    def answered(self) -> None:
        """The attempt has its answer; what that says comes next."""
        self._attempt_is_out = False

    def refused(self, kind: type[BrokerError], *, in_turn: bool, newest: bool = True) -> None:
        """The answer is an error of *kind*.

        *in_turn*: nothing before it in its partition keeps the leader from taking it. *newest*: nothing behind it may
        be in the log, as far as anybody knows, so that a leader that has it knows it in any case.
        """
        self._attempt_is_out = False
        # A leader never recognises a half, so that it does not says nothing.
        if in_turn and issubclass(kind, SEQUENCE_REFUSALS) and not self.half_of_possibly_persisted:
            self._denials += 1
            if newest and self._denials >= DENIALS_BELIEVED:
                self._believe_denials()
        else:
            self._denials = 0
        if not kind.definitely_refused:
            self._in_doubt = True

    def forget_denials(self) -> None:
        """Somebody else leads, or the log is another one: what was said before does not count."""
        self._denials = 0

    def connection_lost(self, *, reached_socket: bool) -> None:
        """There will be no answer. *reached_socket*: bytes of the request may have left."""
        if self._attempt_is_out and reached_socket:
            self._in_doubt = True
        self._attempt_is_out = False
        self._denials = 0

    def answer_not_understood(self) -> None:
        """There was an answer, and a bug of ours kept us from taking it: it may have said anything."""
        self._in_doubt = True

    def leave_log(self) -> None:
        """The cluster changed: the new one does not have the batch, while the old one may have it."""
        if self.possible:
            self._remains_possible = True
        self._in_doubt = self.half_of_possibly_persisted = False
        self._denials = 0

    def ruled_out(self) -> None:
        """It is surely not in the log: one before it, under the same identity, is not (KIP-98 leaves no gaps)."""
        self._in_doubt = self.half_of_possibly_persisted = False

    def of_part(self, *, keeps_sequence: bool) -> Persistence:
        """Return what is known of a part of the batch; *keeps_sequence*: it goes under its share of the sequences."""
        part = Persistence()
        part._in_doubt = self._in_doubt
        part._remains_possible = self._remains_possible
        part.half_of_possibly_persisted = self._in_doubt and keeps_sequence
        return part

    def _believe_denials(self) -> None:
        """Believe a leader that keeps refusing the sequence of the oldest batch without an outcome.

        It looks for duplicates before it looks at the sequence. It remembers the last five batches, and no more than
        five follow the oldest that is not settled (PartitionQueue.next_batch): it would recognise this one. Only a
        leader that was started again from its snapshot knows no more than the last batch of each producer: it has
        been asked for those behind this one first (PartitionQueue.to_ask). What should have come before may have
        failed, or have been lost with the end of a log, or with a topic that was made anew. The JVM client believes
        the first OUT_OF_ORDER_SEQUENCE_NUMBER or UNKNOWN_PRODUCER_ID for the batch that is next, and takes the next
        epoch (TransactionManager.canRetry; KIP-360); the first INVALID_PRODUCER_EPOCH fails the batch there. We want
        to be told several times, since a batch that is in the log after all would be there twice.
        """
        if self._in_doubt:
            self._in_doubt = False
            self._remains_possible = True
