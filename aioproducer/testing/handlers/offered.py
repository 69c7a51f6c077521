"""The versions of the APIs that the in-process broker offers, and takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aioproducer.protocol.apis import REQUESTS
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest

OFFERED: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {key: cls.VERSIONS for key, cls in sorted(REQUESTS.items())}
    | {InitProducerIdRequest.API_KEY: (0, 5)}  # Kafka has 6 only with `unstable.api.versions.enable`
)
"""By the number of the API, the lowest and the highest version."""

TELEMETRY: Final = frozenset({GetTelemetrySubscriptionsRequest.API_KEY, PushTelemetryRequest.API_KEY})
"""Offered only where somebody receives it."""
