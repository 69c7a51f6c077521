"""Evidence that partitions with records were deleted: their topic was recreated with fewer partitions."""

from __future__ import annotations

from typing import Final

from aioproducer.batching.waiters import Failure
from aioproducer.errors import UnknownTopicOrPartition
from aioproducer.types import TopicPartition

AGREE_S: Final = 5.0
"""Least time between two answers without a partition for the partition to count as deleted, in seconds."""


class MissingPartitions:
    """Consecutive metadata responses without the partitions that records wait for.

    One response is no proof, because a broker may lag behind. Proof is two responses with a new topic id, or two
    responses of different brokers without topic ids, `AGREE_S` apart. Fewer partitions under an unchanged topic id
    always mean that the broker lags, because a topic never loses partitions.
    """

    __slots__ = ("_first_node", "_since", "are_deleted", "has_other_id", "has_same_id")

    def __init__(self, *, has_same_id: bool) -> None:
        self.has_same_id: bool = has_same_id
        """True if the answers have the topic id that the records were appended under."""
        self.has_other_id: bool = False
        """True if the answers have a topic id other than that of the append."""
        self.are_deleted: bool = False
        """True once the evidence is sufficient."""
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
    """Return the failure of a batch whose topic has only so many *partitions*."""
    those = "1 partition, 0" if partitions == 1 else f"{partitions} partitions, 0 to {partitions - 1}"
    text = f"{where}: no such partition, {where.topic!r} was recreated with {those}"
    return Failure(UnknownTopicOrPartition, text, possibly_persisted)
