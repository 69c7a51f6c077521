"""`aiokafka.abc`: the base class of providers of OAuth tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping


class AbstractTokenProvider(ABC):
    """Provider of tokens for OAUTHBEARER. Each authentication calls it, so providers should cache valid tokens."""

    @abstractmethod
    async def token(self) -> str:
        """Return a valid token."""

    def extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions of the token (KIP-342)."""
        return {}
