"""A handover: what a producer leaves to the next one of its kind. Connections that are open, and what secures them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from aioproducer._core.net.address import Address
from aioproducer._core.net.connection import Connection
from aioproducer.config import ProducerConfig

if TYPE_CHECKING:
    from aioproducer._core.net.connection_security import ConnectionSecurity


def connection_security(config: ProducerConfig) -> ConnectionSecurity | None:
    """Return what secures the connections of a producer with *config*; None: nothing does."""
    if config.security_protocol == "PLAINTEXT":
        return None
    # Few of those who have no use for it would like to wait for its import.
    from aioproducer._core.net.connection_security import ConnectionSecurity  # noqa: PLC0415

    return ConnectionSecurity(
        config.security_settings(), backoff=config.connection_settings().reconnect_backoff
    )


class Handover:
    """Goes from producer to producer, on one event loop: their options are the same, but for their transactional ids."""

    def __init__(self, config: ProducerConfig) -> None:
        self.security: Final = connection_security(config)
        self._left: list[tuple[Address, Connection]] = []

    def leave(self, connections: Iterable[tuple[Address, Connection]]) -> None:
        """Keep *connections*, on which nobody waits for anything, to these addresses."""
        self._left += connections

    def take(self) -> list[tuple[Address, Connection]]:
        """Return what was left, to one taker. Brokers may have closed some since."""
        left, self._left = self._left, []
        return left

    async def close(self) -> None:
        """Close what was left and not taken; nobody logs in any more."""
        if self.security is not None:
            self.security.close()
        left = [connection for _, connection in self.take()]
        for connection in left:
            connection.close()
        for connection in left:
            await connection.wait_closed()
