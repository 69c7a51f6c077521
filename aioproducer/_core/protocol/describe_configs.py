"""DescribeConfigs: the settings of topics. KIP-133, KIP-482 (v4: flexible), KIP-569 (v3: types and documentation)."""

from __future__ import annotations

from typing import Final

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, message
from aioproducer._core.protocol.types import (
    BOOL,
    INT8,
    INT16,
    INT32,
    NULLABLE_TEXT,
    STRING,
    array_of,
    nullable_array_of,
)

TOPIC: Final = 2
"""Resource type of a topic."""


@struct
class DescribeConfigsSynonym:
    """Value of a setting at another level, such as the broker's default."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_TEXT)
    source: int = field(INT8)


@struct
class DescribeConfigsResourceResult:
    """One setting."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_TEXT)
    read_only: bool = field(BOOL, default=False)
    config_source: int = field(INT8, ignorable=True, default=-1)
    is_sensitive: bool = field(BOOL, default=False)
    synonyms: list[DescribeConfigsSynonym] = field(
        array_of(DescribeConfigsSynonym), ignorable=True, factory=list
    )
    config_type: int = field(INT8, since=3, ignorable=True, default=0)
    documentation: str | None = field(NULLABLE_TEXT, since=3, ignorable=True, default="")


@struct
class DescribeConfigsResult:
    """Settings of one resource."""

    error_code: int = field(INT16, default=0)
    error_message: str | None = field(NULLABLE_TEXT, default="")
    resource_type: int = field(INT8, default=0)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(
        array_of(DescribeConfigsResourceResult), factory=list
    )


@message(api_key=32, versions=(1, 4), flexible_from=4, client_pauses_from=2, large=True)
class DescribeConfigsResponse(Message):
    """Settings of each resource, or an error."""

    throttle_time_ms: int = field(INT32, default=0)
    results: list[DescribeConfigsResult] = field(array_of(DescribeConfigsResult))


@struct
class DescribeConfigsResource:
    """Resource with the names of the requested settings; None requests all."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(nullable_array_of(STRING))


@message(api_key=32, versions=(1, 4), flexible_from=4)
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Describe the settings of these resources."""

    resources: list[DescribeConfigsResource] = field(array_of(DescribeConfigsResource))
    include_synonyms: bool = field(BOOL, default=False)
    include_documentation: bool = field(BOOL, since=3, default=False)
