"""The producer id and epoch under which an idempotent producer writes (KIP-98, KIP-360)."""

from __future__ import annotations

from typing import NamedTuple

MAX_EPOCH = 2**15 - 1


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch; the broker keeps sequences per partition under it."""

    producer_id: int
    epoch: int


class IdentityKeeper:
    """The identity in force. `current` is None while a new producer id has to be asked for."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current: ProducerIdentity | None = None

    def assign(self, producer_id: int, epoch: int) -> None:
        """Use what InitProducerId answered."""
        self.current = ProducerIdentity(producer_id, epoch)

    def leave(self, identity: ProducerIdentity) -> None:
        """Let nothing new be written under *identity*: sequences under it have a gap or are in doubt.

        The next epoch takes over without asking the broker, as the JVM client does for producers
        without transactions; after the last epoch it takes a new producer id. If *identity* has
        been left already, there is nothing to do.
        """
        if identity != self.current:
            return
        if identity.epoch < MAX_EPOCH:
            self.current = identity._replace(epoch=identity.epoch + 1)
        else:
            self.current = None
