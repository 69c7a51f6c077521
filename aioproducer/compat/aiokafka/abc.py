"""A provider of OAuth tokens, as aiokafka's users write one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping


class AbstractTokenProvider(ABC):
    """Gives tokens for OAUTHBEARER. It is asked at each login, so it had better remember its token while that is good."""

    @abstractmethod
    async def token(self) -> str:
        """Return a token that is valid."""

    def extensions(self) -> Mapping[str, str]:
        """Return what goes with it, if anything does (KIP-342)."""
        return {}
