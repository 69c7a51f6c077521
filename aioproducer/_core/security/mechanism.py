"""A SASL mechanism: proves to a broker who we are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from aioproducer._core.logfmt import LONGEST_HOST, escaped


class Broker(NamedTuple):
    """Whom a mechanism talks to, under the name that it was given to us by."""

    host: str
    port: int

    def __str__(self) -> str:
        host = escaped(self.host, LONGEST_HOST)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@runtime_checkable
class Mechanism(Protocol):
    """One authentication; a new one is made for each.

    It may have an attribute `complete`: false while more is to be sent, an empty message too. Without it the exchange
    is over once the broker has nothing more to say, or `respond` returns nothing.
    """

    @property
    def name(self) -> str:
        """What brokers know it by: SCRAM-SHA-256."""
        ...

    def start(self, broker: Broker, /) -> bytes | Awaitable[bytes]:
        """Return the first message."""
        ...

    def respond(self, challenge: bytes, /) -> bytes | Awaitable[bytes]:
        """Return the answer to what the broker has said; raise if that will not do."""
        ...


MechanismFactory: TypeAlias = Callable[[], Mechanism]


class Refused(Exception):
    """A mechanism gives up: the broker said what it should not, or there is nothing to log in with.

    Its text is for people; whoever drives the mechanism adds which broker it was.
    """
