"""A finalized feature of a living cluster, switched up or down (KIP-584)."""

from __future__ import annotations

from aioproducer._core.address import Address
from aioproducer._core.net.opening import open_connection
from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, message
from aioproducer._core.protocol.types import BOOL, INT8, INT16, INT32, NULLABLE_STRING, STRING, array_of
from tests.kafka.raw_transactions import SETTINGS

UP, DOWN = 1, 2


@struct
class FeatureUpdate:
    """The new level of a feature, as an upgrade or a safe downgrade."""

    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    upgrade_type: int = field(INT8)


@message(api_key=57, versions=(2, 2), flexible_from=0, client_pauses_from=0)
class UpdateFeaturesResponse(Message):
    """One code for all."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)


@message(api_key=57, versions=(2, 2), flexible_from=0)
class UpdateFeaturesRequest(Request[UpdateFeaturesResponse]):
    """Change the levels of features."""

    timeout_ms: int = field(INT32, default=60_000)
    feature_updates: list[FeatureUpdate] = field(array_of(FeatureUpdate))
    validate_only: bool = field(BOOL, default=False)


async def switch(servers: str, feature: str, level: int, *, how: int) -> None:
    """Change the level of a feature, and return when the broker reports the level to new connections."""
    host, port = servers.split(":")
    address = Address(host, int(port))
    connection = await open_connection(address, SETTINGS)
    update = FeatureUpdate(feature=feature, max_version_level=level, upgrade_type=how)
    answer = await connection.request(UpdateFeaturesRequest(feature_updates=[update]), version=2)
    assert answer.error_code == 0, answer.error_message
    while connection.versions.finalized_features.get(feature) != level:
        connection.close()
        await connection.wait_closed()
        connection = await open_connection(address, SETTINGS)
    connection.close()
    await connection.wait_closed()
