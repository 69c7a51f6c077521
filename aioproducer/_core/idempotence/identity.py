"""The producer id and epochs under which an idempotent producer writes (KIP-98, KIP-360)."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.types import TopicPartition

MAX_EPOCH = 2**15 - 1


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch; the broker keeps both, and the sequences under them, per partition."""

    producer_id: int
    epoch: int


class IdentityKeeper:
    """The identity that partitions begin with. `current` is None while a new producer id has to be asked for.

    A broker compares epochs within a partition only, so a partition that needs the next epoch takes it alone, and
    the others go on under theirs. (The JVM client bumps the epoch of the whole producer: every partition then waits
    once for all its answers.)
    """

    __slots__ = ("bumps_partitions", "current")

    @property
    def leaders_begin_at_zero(self) -> bool:
        """Whether a leader that knows nothing of the identity takes sequence 0 only (KIP-890), not any (KIP-360)."""
        return False

    def __init__(self, *, bumps_partitions: bool = True) -> None:
        self.bumps_partitions: bool = bumps_partitions
        """True if a partition may take the next epoch alone; a transaction has one epoch for all partitions."""
        self.current: ProducerIdentity | None = None

    def assign(self, producer_id: int, epoch: int) -> None:
        """Use what InitProducerId answered."""
        self.current = ProducerIdentity(producer_id, epoch)

    def leave_cluster(self) -> None:
        """Drop the identity, because another cluster may have assigned the same producer id to another producer."""
        self.current = None

    def admits(self, where: TopicPartition) -> bool:
        """Whether a new batch may be written to *where* now."""
        return self.current is not None

    def want(self, where: TopicPartition) -> None:
        """Note that a batch waits to be admitted to *where*."""

    def request_epoch_bump(self) -> None:
        """Note that a partition has given out a sequence that will never be in its log, or may not be."""

    def keeps(self, identity: ProducerIdentity | None) -> bool:
        """Whether the sequences under *identity* must not be forgotten, as no later epoch can take their place."""
        return False

    def after(self, identity: ProducerIdentity) -> ProducerIdentity | None:
        """Return the identity with which a partition goes on that has left *identity*; None if there is none yet.

        The next epoch takes over without asking the broker, as the JVM client does for producers
        without transactions; after the last epoch the whole producer takes a new producer id.
        """
        current = self.current
        if current is None or current.producer_id != identity.producer_id:
            return current
        if identity.epoch == MAX_EPOCH:
            self.current = None
            return None
        return identity._replace(epoch=identity.epoch + 1)

    def begin_after(self, identity: ProducerIdentity) -> None:
        """Let every partition that begins from now on do so in a later epoch than that of *identity*."""
        later = self.after(identity)
        if later is not None and self.current is not None:
            self.current = max(self.current, later)
