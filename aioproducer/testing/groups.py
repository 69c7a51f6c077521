"""Offsets of consumer groups, committed and pending; tests set the members of a group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aioproducer.errors import FencedInstanceId, IllegalGeneration, UnknownMemberId
from aioproducer.testing.faults import Refused, Target


class CommittedOffset(NamedTuple):
    """Committed offset of a group for a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


class Consumer(NamedTuple):
    """Consumer in an offset commit; the defaults stand for a consumer without a group membership."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


@dataclass(slots=True)
class Group:
    """One consumer group."""

    committed: dict[Target, CommittedOffset] = field(default_factory=dict)
    pending: dict[int, dict[Target, CommittedOffset]] = field(default_factory=dict)
    """Offsets of open transactions, by producer id."""
    members: dict[str, str | None] = field(default_factory=dict)
    """The `group.instance.id` of each member."""
    generation: int = -1


class Groups:
    """All groups of a cluster. Methods raise Refused with the error code of a broker."""

    def __init__(self) -> None:
        self._groups: Final[dict[str, Group]] = {}

    def join(self, group_id: str, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Set the generation of a group and add the member; a new generation removes other members."""
        group = self._groups.setdefault(group_id, Group())
        if generation != group.generation:
            group.members.clear()
        group.generation = generation
        group.members[member_id] = instance_id

    def check(self, group_id: str, consumer: Consumer) -> None:
        """Check that *consumer* is a member of the group in its generation."""
        group = self._groups.get(group_id)
        if group is None:
            if consumer.generation >= 0:
                raise Refused(IllegalGeneration, f"there is no group {group_id}")
            return
        if consumer.generation < 0 and not group.members:
            return
        if consumer == Consumer():
            return
        instances = {each: member for member, each in group.members.items() if each is not None}
        if consumer.instance_id is not None and consumer.instance_id in instances:
            if instances[consumer.instance_id] != consumer.member_id:
                raise Refused(FencedInstanceId, f"{consumer.instance_id} is another member's")
        elif consumer.member_id not in group.members or consumer.instance_id is not None:
            raise Refused(UnknownMemberId, f"{consumer.member_id!r} is not in group {group_id}")
        if consumer.generation != group.generation:
            raise Refused(IllegalGeneration, f"group {group_id} is in generation {group.generation}")

    def add(self, group_id: str, producer_id: int, target: Target, offset: CommittedOffset) -> None:
        """Add an offset to commit with the transaction of a producer."""
        group = self._groups.setdefault(group_id, Group())
        group.pending.setdefault(producer_id, {})[target] = offset

    def end(self, group_id: str, producer_id: int, *, committed: bool) -> None:
        """Commit or drop the offsets of a producer's transaction for a group."""
        group = self._groups.get(group_id, Group())
        pending = group.pending.pop(producer_id, {})
        if committed:
            group.committed |= pending

    def committed(self, group_id: str, target: Target) -> CommittedOffset | None:
        """Return the committed offset of a group for a partition, or None."""
        return self._groups.get(group_id, Group()).committed.get(target)

    def targets(self, group_id: str) -> list[Target]:
        """Return the partitions with a committed offset of a group."""
        return sorted(self._groups.get(group_id, Group()).committed)

    def is_pending(self, group_id: str, target: Target) -> bool:
        """Return True if an open transaction may change the offset."""
        return any(target in offsets for offsets in self._groups.get(group_id, Group()).pending.values())
