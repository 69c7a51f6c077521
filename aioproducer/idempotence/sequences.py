"""Sequence numbers of one partition (KIP-98): consecutive per identity, from 0, wrapping at 2**31."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import Final, NamedTuple

from aioproducer.idempotence.identity import IdentityKeeper, ProducerIdentity

_order_of: Final = attrgetter("order")
_SEQUENCES = 2**31
_REMEMBERED: Final = 16
"""More than may follow the oldest batch that is not settled, halves of them included."""


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


class Acknowledged(NamedTuple):
    """A batch that a leader has acknowledged: its place in the order of its partition, and where it is in the log."""

    order: tuple[int, ...]
    base_offset: int
    """-1 if the leader only recognised it."""
    end_offset: int
    """Where the log went on behind it, or behind one before it that is forgotten; -1 if neither is known."""


class PartitionSequences:
    """Which identity a partition writes under, and the next sequence.

    A partition changes its identity only while none of its batches holds a sequence (*unsettled*):
    the broker must have answered for everything under the old one before it sees the new one,
    or it would take a late batch of the old epoch for a zombie's.
    """

    __slots__ = (
        "_acknowledged",
        "_identity",
        "_next",
        "_to_the_old_log",
        "acknowledged_here",
        "gap_at",
        "needs_epoch_bump",
    )

    def __init__(self) -> None:
        self._identity: ProducerIdentity | None = None
        self._next = 0
        self._acknowledged: list[Acknowledged] = []  # a deque takes 760 bytes for one
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
        self, sequence: BatchSequence, order: tuple[int, ...], count: int, base_offset: int, *, alone: bool
    ) -> None:
        """The leader has the batch in place *order*, which carries *sequence*, with its *count* records.

        *alone* is whether nothing else has a sequence and no final answer: nobody will ask what those before it prove.
        """
        identity, _ = sequence
        if identity == self._identity and order > self._to_the_old_log:
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
                acknowledged.clear()
            # As Acknowledged(…), without its frame.
            acknowledged.append(tuple.__new__(Acknowledged, (order, base_offset, end_offset)))
            if len(acknowledged) > _REMEMBERED:
                del acknowledged[0]

    def proves(self, order: tuple[int, ...], count: int) -> bool:
        """Return True if the batch in place *order*, with its *count* records, is in the log, because a later batch is.

        A broker leaves no gaps (KIP-98), unless it has forgotten the producer and accepts the first batch it receives. The
        log has lost its end then, and between the acknowledged batches there is no room for the batch. The newest
        acknowledged batch before *order* has the end to compare with: an older one may have ended behind the log's new end.
        """
        before = [each for each in self._acknowledged if each.order < order and each.end_offset >= 0]
        end = max(before, key=_order_of).end_offset if before else 0
        return any(
            each.order > order and (each.base_offset < 0 or each.base_offset >= end + count)
            for each in self._acknowledged
        )

    def forget_log(self, in_flight: tuple[int, ...] = ()) -> None:
        """The topic was made anew: its log is empty, and its leader takes whatever sequence it sees first.

        What is told of batches up to the place *in_flight*, which are on their way, says nothing of the new log.
        """
        self._to_the_old_log = in_flight
        self.acknowledged_here = False
        self._acknowledged.clear()

    def leave_cluster(self) -> None:
        """Restart in another cluster under another producer id, after all batches with a sequence are settled."""
        self._identity = None
        self.forget_log()
        self.request_epoch_bump((0,), absent=True)  # before all places

    def take_back(self, sequence: BatchSequence) -> None:
        """The leader refused the batch that carries *sequence*, and nothing was numbered since: begin there again."""
        self._next = sequence.base_sequence

    def retire(self, keeper: IdentityKeeper) -> None:
        """Forget where the partition was: who writes to it later may not begin at 0 under the same identity.

        The broker would take the batch for one that it has, and acknowledge it without storing it.
        """
        if self._identity is not None:
            keeper.begin_after(self._identity)

    def may_assign(self, keeper: IdentityKeeper, unsettled: Collection[object]) -> bool:
        """Whether a new batch may get a sequence now; moves on to a new identity when it is time, and nothing *unsettled*.

        *unsettled* are the batches that hold a sequence, as they are kept: to make a bool of them is another call.
        """
        if not keeper.bumps_partitions:
            return self._may_assign_as_all(keeper, unsettled)
        if self.needs_epoch_bump:
            if unsettled:
                return False
            self._begin(None if self._identity is None else keeper.after(self._identity))
            self.needs_epoch_bump, self.gap_at = False, None
        if keeper.current is None:
            return False
        identity = self._identity
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
        if self._identity != current and not unsettled:
            self.needs_epoch_bump, self.gap_at = False, None
            self._begin(current)
            self.acknowledged_here = keeper.leaders_begin_at_zero  # then nothing can overtake the first batch
        return self._identity == current is not None and not self.needs_epoch_bump

    def is_kept(self, keeper: IdentityKeeper) -> bool:
        """Whether what comes next must not begin at 0, as the identity stays the same."""
        return keeper.keeps(self._identity)

    def _begin(self, identity: ProducerIdentity | None) -> None:
        self._next = 0
        self.acknowledged_here = False
        self._acknowledged.clear()  # what was under another identity says nothing of this one
        self._identity = identity  # last, so that an interrupted call can be repeated

    def assign(self, count: int) -> BatchSequence:
        """Give the next *count* sequences to a batch; `may_assign` has just said yes."""
        if self._identity is None:
            raise AssertionError("assign() before may_assign() said yes")
        # As BatchSequence(…) and add_to_sequence(…), without their frames: every batch gets one.
        sequence = tuple.__new__(BatchSequence, (self._identity, self._next))
        self._next = (self._next + count) % _SEQUENCES
        return sequence
