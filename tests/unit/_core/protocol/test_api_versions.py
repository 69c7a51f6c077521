from __future__ import annotations

import pytest

from aioproducer._core.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from aioproducer._core.protocol.schema import decode
from tests.unit._core.protocol.golden import check

REQUEST = ApiVersionsRequest(
    client_software_name="aioproducer", client_software_version="1.0", cluster_id="c", node_id=7
)
RESPONSE = ApiVersionsResponse(
    error_code=0,
    api_keys=[ApiVersion(api_key=0, min_version=3, max_version=12)],
    throttle_time_ms=1,
    supported_features=[SupportedFeatureKey(name="f", min_version=0, max_version=2)],
    finalized_features_epoch=4,
    finalized_features=[FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)],
    zk_migration_ready=True,
)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, ""),
        (2, ""),
        (3, "0c 61696f70726f6475636572 04 312e30 00"),
        (4, "0c 61696f70726f6475636572 04 312e30 00"),
        (5, "0c 61696f70726f6475636572 04 312e30 02 63 00000007 00"),
    ],
)
def test_the_request_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(REQUEST, version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "0000 00000001 0000 0003 000c"),
        (1, "0000 00000001 0000 0003 000c 00000001"),
        (
            3,
            (
                "0000 02 0000 0003 000c 00 00000001 04"
                " 00 08 02 02 66 0000 0002 00"
                " 01 08 0000000000000004"
                " 02 08 02 02 66 0002 0001 00"
                " 03 01 01"
            ),
        ),
    ],
)
def test_the_response_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(RESPONSE, version, wire)


def test_a_broker_without_features_sends_none() -> None:
    response = decode(ApiVersionsResponse, 4, bytes.fromhex("0000 01 00000000 00"))
    assert (response.finalized_features_epoch, response.finalized_features) == (-1, [])
