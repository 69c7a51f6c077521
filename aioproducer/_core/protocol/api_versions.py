"""ApiVersions: which versions of which APIs a broker speaks; the first request of every connection.

KIP-35, KIP-511 (v3: flexible, the client's name and version), KIP-584 (features in v3), KIP-1242 (v5: the cluster id and
node id that the client expects; any other broker answers error 129).

A broker that lacks the version it is asked in answers error 35 in version 0, whatever was asked (KIP-511); and
the response's header is always the classic one, or such an answer could not be read (`protocol/schema.py`).
"""

from __future__ import annotations

from typing import Final

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, message
from aioproducer._core.protocol.types import BOOL, INT16, INT32, INT64, NULLABLE_STRING, STRING, array_of

MOST_ITEMS: Final = 1_000
"""Maximum number of APIs and of features; Kafka 4.4 has about 90 and 10. The response comes before any login."""


@struct
class ApiVersion:
    """The versions of one API, both included."""

    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@struct
class SupportedFeatureKey:
    """A feature the broker knows, and at which levels."""

    name: str = field(STRING)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@struct
class FinalizedFeatureKey:
    """A feature in force in the whole cluster, and at which levels."""

    name: str = field(STRING)
    max_version_level: int = field(INT16)
    min_version_level: int = field(INT16)


@message(api_key=18, versions=(0, 5), flexible_from=3, client_pauses_from=2)
class ApiVersionsResponse(Message):
    """What the broker speaks; *finalized_features* hold only from a *finalized_features_epoch* of 0 on."""

    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(array_of(ApiVersion, most=MOST_ITEMS))
    throttle_time_ms: int = field(INT32, since=1, ignorable=True, default=0)
    supported_features: list[SupportedFeatureKey] = field(
        array_of(SupportedFeatureKey, most=MOST_ITEMS), since=3, tag=0, ignorable=True, factory=list
    )
    finalized_features_epoch: int = field(INT64, since=3, tag=1, ignorable=True, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(
        array_of(FinalizedFeatureKey, most=MOST_ITEMS), since=3, tag=2, ignorable=True, factory=list
    )
    zk_migration_ready: bool = field(BOOL, since=3, tag=3, ignorable=True, default=False)


@message(api_key=18, versions=(0, 5), flexible_from=3)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Who is asking; brokers refuse names and versions with other characters than letters, digits, `-` and `.`."""

    client_software_name: str = field(STRING, since=3, ignorable=True)
    client_software_version: str = field(STRING, since=3, ignorable=True)
    cluster_id: str | None = field(NULLABLE_STRING, since=5, ignorable=True, default=None)
    node_id: int = field(INT32, since=5, ignorable=True, default=-1)
