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

    *finalized_features* are those in force in the whole cluster, by name (KIP-584), as of an epoch that only grows:
    of what two brokers say, the one with the higher *finalized_features_epoch* is newer; -1 says nothing.
    """

    def __init__(
        self,
        offered: Mapping[int, tuple[int, int]],
        caps: Mapping[int, int] = MappingProxyType({}),
        *,
        finalized_features: Mapping[str, int] = MappingProxyType({}),
        finalized_features_epoch: int = -1,
    ) -> None:
        self.offered: Final = dict(offered)
        self.finalized_features: Final = dict(finalized_features)
        self.finalized_features_epoch: Final = finalized_features_epoch
        self._caps = dict(caps)
        self._picked: dict[type[Request[Any]], int] = {}

    def pick(self, request_cls: type[Request[Any]], *, at_most: int | None = None) -> int:
        """Return the version to send, or raise UnsupportedVersion, which says who is too old.

        With *at_most* it is no later one: some must not be used while the cluster lacks a feature, though it offers them.
        """
        try:
            version = self._picked[request_cls]
        except KeyError:
            version = self._picked[request_cls] = self._highest_common(request_cls)
        if at_most is None or version <= at_most:
            return version
        if at_most < max(request_cls.VERSIONS[0], self.offered[request_cls.API_KEY][0]):
            raise self._too_far_apart(request_cls)
        return at_most

    def _highest_common(self, request_cls: type[Request[Any]]) -> int:
        lowest, highest = request_cls.VERSIONS
        try:
            offered_lowest, offered_highest = self.offered[request_cls.API_KEY]
        except KeyError:
            raise _unsupported(request_cls, "the broker does not offer it") from None
        version = min(highest, offered_highest, self._caps.get(request_cls.API_KEY, highest))
        if version < max(lowest, offered_lowest):
            raise self._too_far_apart(request_cls)
        return version

    def _too_far_apart(self, request_cls: type[Request[Any]]) -> UnsupportedVersion:
        lowest, highest = self.offered[request_cls.API_KEY]
        return _unsupported(request_cls, f"the broker offers versions {lowest} to {highest}")


def _unsupported(request_cls: type[Request[Any]], offer: str) -> UnsupportedVersion:
    api = request_cls.__name__.removesuffix("Request")
    lowest, highest = request_cls.VERSIONS
    return UnsupportedVersion(
        f"{api} (API {request_cls.API_KEY}): {offer}, this client needs one of {lowest} to {highest}; "
        f"it works with Kafka {_OLDEST_KAFKA} and later"
    )
