"""Interface of SASL mechanisms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from aioproducer._core.logfmt import LONGEST_HOST, escaped


class Broker(NamedTuple):
    """Broker of an authentication, by its configured or advertised name."""

    host: str
    port: int

    def __str__(self) -> str:
        host = escaped(self.host, LONGEST_HOST)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@runtime_checkable
class Mechanism(Protocol):
    """One authentication; each authentication has a new mechanism.

    The optional attribute `complete` is false while messages remain, even empty ones. Without `complete` the exchange ends
    with an empty challenge, or when `respond` returns an empty message.
    """

    @property
    def name(self) -> str:
        """Registered name, for example SCRAM-SHA-256."""
        ...

    def start(self, broker: Broker, /) -> bytes | Awaitable[bytes]:
        """Return the first message."""
        ...

    def respond(self, challenge: bytes, /) -> bytes | Awaitable[bytes]:
        """Return the response to *challenge*; raise for an invalid one."""
        ...


MechanismFactory: TypeAlias = Callable[[], Mechanism]


class Refused(Exception):
    """Raised by a mechanism for an invalid message of the broker, or without credentials.

    The text is for users. The exchange adds the name of the broker.
    """
