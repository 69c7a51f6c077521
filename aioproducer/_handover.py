"""A handover: open connections and their security, kept for the next producer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from aioproducer._core.address import Address
from aioproducer._core.net.connection import Connection
from aioproducer.config import ProducerConfig

if TYPE_CHECKING:
    from aioproducer._core.net.connection_security import ConnectionSecurity


def connection_security(config: ProducerConfig) -> ConnectionSecurity | None:
    """Return the security of connections with *config*; None for PLAINTEXT."""
    if config.security_protocol == "PLAINTEXT":
        return None
    # Imported here, because PLAINTEXT producers start sooner.
    from aioproducer._core.net.connection_security import ConnectionSecurity  # noqa: PLC0415

    return ConnectionSecurity(
        config.security_settings(), backoff=config.connection_settings().reconnect_backoff
    )


class Handover:
    """Open connections and their security, kept for the next producer on the same event loop with the same options.

    The transactional ids of the producers may differ.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.security: Final = connection_security(config)
        self._left: list[tuple[Address, Connection]] = []

    def leave(self, connections: Iterable[tuple[Address, Connection]]) -> None:
        """Keep *connections*, none of which has a request in flight."""
        self._left += connections

    def take(self) -> list[tuple[Address, Connection]]:
        """Return the kept connections, and forget them. Brokers may have closed some."""
        left, self._left = self._left, []
        return left

    async def close(self) -> None:
        """Close the kept connections and the security."""
        if self.security is not None:
            self.security.close()
        left = [connection for _, connection in self.take()]
        for connection in left:
            connection.close()
        for connection in left:
            await connection.wait_closed()
