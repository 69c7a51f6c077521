"""Which version of a request to send to a broker: the highest that both sides know."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from aioproducer.errors import UnsupportedVersion
from aioproducer.protocol.schema import Request

_OLDEST_KAFKA: Final = "0.11"
"""The first release with the lowest version of every message here."""


class ApiVersionTable:
    """What one broker offers: API number to the lowest and highest version, both included.

    *caps* hold versions down below what both sides could do: a test that is to see each one, for instance.
    """

    def __init__(
        self,
        offered: Mapping[int, tuple[int, int]],
        caps: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.offered: Final = dict(offered)
        self._caps = dict(caps)
        self._picked: dict[type[Request[Any]], int] = {}

    def pick(self, request_cls: type[Request[Any]]) -> int:
        """Return the version to send, or raise UnsupportedVersion, which says who is too old."""
        try:
            return self._picked[request_cls]
        except KeyError:
            version = self._picked[request_cls] = self._highest_common(request_cls)
            return version

    def _highest_common(self, request_cls: type[Request[Any]]) -> int:
        lowest, highest = request_cls.VERSIONS
        try:
            offered_lowest, offered_highest = self.offered[request_cls.API_KEY]
        except KeyError:
            raise _unsupported(request_cls, "the broker does not offer it") from None
        version = min(highest, offered_highest, self._caps.get(request_cls.API_KEY, highest))
        if version < max(lowest, offered_lowest):
            raise _unsupported(
                request_cls, f"the broker offers versions {offered_lowest} to {offered_highest}"
            )
        return version


def _unsupported(request_cls: type[Request[Any]], offer: str) -> UnsupportedVersion:
    api = request_cls.__name__.removesuffix("Request")
    lowest, highest = request_cls.VERSIONS
    return UnsupportedVersion(
        f"{api} (API {request_cls.API_KEY}): {offer}, this client needs one of {lowest} to {highest}; "
        f"it works with Kafka {_OLDEST_KAFKA} and later"
    )
