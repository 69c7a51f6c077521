"""The part of a Cluster that is about transactions and the offsets of groups."""

from __future__ import annotations

from aioproducer.testing.faults import Target, check_number
from aioproducer.testing.groups import CommittedOffset
from aioproducer.testing.state import ClusterState

VERSIONS = range(3)
"""Levels of the feature `transaction.version`."""


class TransactionControls:
    """What tests ask of transactions, and do to them."""

    _state: ClusterState

    @property
    def transaction_version(self) -> int:
        """The level of the feature `transaction.version`, which may be changed while the cluster runs (KIP-890).

        Clients hear of another one with their next connection.
        """
        return self._state.coordinator.transaction_version

    @transaction_version.setter
    def transaction_version(self, version: int) -> None:
        self._state.coordinator.transaction_version = checked_version(version)
        self._state.features_epoch += 1

    @property
    def marker_delay_s(self) -> float:
        """How long it takes from the answer to a commit or abort to the markers, from which on consumers see it."""
        return self._state.timers.marker_delay_s

    @marker_delay_s.setter
    def marker_delay_s(self, s: float) -> None:
        self._state.timers.marker_delay_s = s

    def transaction_state(self, transactional_id: str) -> str | None:
        """Return how far the transaction of an id is; None if nobody has used the id.

        "Empty", "Ongoing", "PrepareCommit" or "PrepareAbort", and "CompleteCommit" or "CompleteAbort" when all markers
        are written.
        """
        known = self._state.coordinator.transactions.get(transactional_id)
        return None if known is None else known.state.value

    def committed_offset(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return the offset that a consumer group has committed in a partition; None if it has none."""
        return self._state.groups.committed(group_id, Target(topic, partition))

    def join_group(
        self, group_id: str, member_id: str, generation: int, *, instance_id: str | None = None
    ) -> None:
        """Let a group have a member in a generation: in a new one, those who were there before are not any more.

        There is nothing else to a group here. One that nobody has joined takes offsets from whoever names no
        generation.
        """
        check_number("generation", generation)
        self._state.groups.join(group_id, member_id, generation, instance_id)

    def coordinator(self, key: str) -> int | None:
        """Return the node that coordinates a transactional id or a consumer group; None if no node is alive."""
        node = self._state.coordinator_node(key)
        return None if node is None else node.node_id

    def move_coordinator(self, key: str, *, to_broker: int) -> None:
        """Let another node coordinate a transactional id or a consumer group; it knows all that is known of it."""
        if to_broker not in self._state.nodes:
            raise ValueError(f"there is no broker {to_broker}; the brokers are {sorted(self._state.nodes)}")
        self._state.moved_coordinators[key] = to_broker


def checked_version(version: int) -> int:
    """Return a level that the feature can have. Raises: TypeError, ValueError."""
    check_number("transaction_version", version)
    if version not in VERSIONS:
        raise ValueError(f"transaction.version is 0, 1 or 2, not {version}")
    return version
