"""A cluster whose topics are created, grow, lose records and are deleted, and the history of their logs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aioproducer.testing import Cluster
from tests.scenarios.faults.model import Life, Log


class Chronicle:
    """Changes the topics of a cluster, and stores the changes for the model."""

    def __init__(self, cluster: Cluster) -> None:
        self.lives: list[Life] = []
        """Every topic there was, in order."""
        self._cluster = cluster
        self._living: dict[str, Life] = {}
        self._log_began_at: dict[tuple[str, int], float] = {}

    @property
    def topics(self) -> list[str]:
        """The names of the topics that there are."""
        return sorted(self._living)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0 if it does not exist."""
        life = self._living.get(topic)
        return 0 if life is None else life.sizes[-1][1]

    def leader(self, topic: str, partition: int) -> int:
        """Return the leader, or the last leader if it was stopped."""
        return self._cluster._state.partition(topic, partition).leader

    def create(self, topic: str, leaders: Sequence[int]) -> None:
        """Create a topic with a partition for each of *leaders*."""
        again = any(life.topic == topic for life in self.lives)
        life = Life(topic, again, began_at=_now())
        self._cluster.create_topic(topic, len(leaders))
        self._living[topic] = life
        self.lives.append(life)
        self._grown(life, leaders)

    def grow(self, topic: str, leaders: Sequence[int]) -> None:
        """Add a partition for each of *leaders*."""
        life = self._living[topic]
        self._cluster.add_partitions(topic, self.partitions(topic) + len(leaders))
        self._grown(life, leaders)

    def lose_end(self, topic: str, partition: int, records: int, to_broker: int) -> None:
        """Let a partition lose the last *records* of its log."""
        self._close_log(self._living[topic], partition)
        _ = self._cluster.lose_end(topic, partition, records, to_broker=to_broker)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        life = self._living.pop(topic)
        self._close(life)
        self._cluster.delete_topic(topic)

    def end(self) -> None:
        """Store the final contents of the logs."""
        for life in self._living.values():
            self._close(life)

    def _grown(self, life: Life, leaders: Sequence[int]) -> None:
        """Let the last partitions of a topic be led as it was said, from their first leader epoch on."""
        before = life.sizes[-1][1] if life.sizes else 0
        for partition, leader in enumerate(leaders, before):
            self._cluster._state.partition(life.topic, partition).leader = leader
            self._log_began_at[life.topic, partition] = _now()
        life.sizes.append((_now(), before + len(leaders)))

    def _close(self, life: Life) -> None:
        for partition in range(life.sizes[-1][1]):
            self._close_log(life, partition)
        life.ended_at = _now()

    def _close_log(self, life: Life, partition: int) -> None:
        values = [record.value or b"" for record in self._cluster.records(life.topic, partition)]
        log = Log(self._log_began_at[life.topic, partition], _now(), values)
        life.logs.setdefault(partition, []).append(log)
        self._log_began_at[life.topic, partition] = _now()


def _now() -> float:
    return asyncio.get_running_loop().time()
