"""What a mechanism's side of the broker is, and whom it asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

Tokens: TypeAlias = dict[str, str] | Callable[[str], str | None]
"""Whose a token is: from a mapping, or from a callable that returns None for one that it does not accept."""


class InvalidCredentials(Exception):
    """The login is refused in words that every mistake has in common: as in Kafka, who exists is not told."""


@dataclass(slots=True)
class Accounts:
    """Who may log in. What is changed here holds for the next login."""

    users: dict[str, str] = field(default_factory=dict)
    """Passwords by name; secret keys by access key."""
    tokens: Tokens = field(default_factory=dict)

    def owner(self, token: str) -> str | None:
        """Return whose *token* is; None if it is not accepted."""
        return self.tokens(token) if callable(self.tokens) else self.tokens.get(token)


class Login(Protocol):
    """One login, as the broker sees it."""

    @property
    def user(self) -> str | None:
        """Who has logged in; None before that."""

    def respond(self, message: bytes, /) -> bytes:
        """Return the answer to the client's next message. Raises: InvalidCredentials, Refused."""
