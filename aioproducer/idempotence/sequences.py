"""Sequence numbers of one partition (KIP-98): consecutive per identity, from 0, wrapping at 2**31."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.idempotence.identity import IdentityKeeper, ProducerIdentity

_SEQUENCES = 2**31


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


class PartitionSequences:
    """Which identity a partition writes under, and the next sequence.

    A partition changes its identity only while none of its batches holds a sequence (*unsettled*):
    the broker must have answered for everything under the old one before it sees the new one,
    or it would take a late batch of the old epoch for a zombie's.
    """

    __slots__ = ("_identity", "_next", "acknowledged_here", "gap_at", "needs_epoch_bump")

    def __init__(self) -> None:
        self._identity: ProducerIdentity | None = None
        self._next = 0
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

    def acknowledge(self, sequence: BatchSequence) -> None:
        """The leader has appended the batch that carries *sequence*."""
        self.acknowledged_here |= sequence.identity == self._identity

    def take_back(self, sequence: BatchSequence) -> None:
        """The leader refused the batch that carries *sequence*, and nothing was numbered since: begin there again."""
        self._next = sequence.base_sequence

    def retire(self, keeper: IdentityKeeper) -> None:
        """Forget where the partition was: who writes to it later may not begin at 0 under the same identity.

        The broker would take the batch for one that it has, and acknowledge it without storing it.
        """
        if self._identity is not None:
            keeper.begin_after(self._identity)

    def may_assign(self, keeper: IdentityKeeper, *, unsettled: bool) -> bool:
        """Whether a new batch may get a sequence now; moves on to a new identity when it is time."""
        if self.needs_epoch_bump:
            if unsettled:
                return False
            self._begin(None if self._identity is None else keeper.after(self._identity))
            self.needs_epoch_bump, self.gap_at = False, None
        if keeper.current is None:
            return False
        if self._identity is None or self._identity.producer_id != keeper.current.producer_id:
            if unsettled:
                return False
            self._begin(keeper.current)
        return True

    def _begin(self, identity: ProducerIdentity | None) -> None:
        self._identity = identity
        self._next = 0
        self.acknowledged_here = False

    def assign(self, count: int) -> BatchSequence:
        """Give the next *count* sequences to a batch; `may_assign` has just said yes."""
        if self._identity is None:
            raise AssertionError("assign() before may_assign() said yes")
        sequence = BatchSequence(self._identity, self._next)
        self._next = add_to_sequence(self._next, count)
        return sequence
