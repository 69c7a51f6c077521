from __future__ import annotations

import pytest

from aioproducer._core.protocol.describe_configs import (
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.unit._core.protocol.golden import check

REQUEST = DescribeConfigsRequest(
    resources=[
        DescribeConfigsResource(resource_type=TOPIC, resource_name="o", configuration_keys=["k"]),
        DescribeConfigsResource(resource_type=TOPIC, resource_name="p", configuration_keys=None),
    ]
)
RESPONSE = DescribeConfigsResponse(
    throttle_time_ms=7,
    results=[
        DescribeConfigsResult(
            error_message=None,
            resource_type=TOPIC,
            resource_name="o",
            configs=[DescribeConfigsResourceResult(name="k", value="v", config_source=5, documentation=None)],
        ),
        DescribeConfigsResult(error_code=29, error_message="no", resource_type=TOPIC, resource_name="p"),
    ],
)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (1, "00000002 02 0001 6f 00000001 0001 6b 02 0001 70 ffffffff 00"),
        (3, "00000002 02 0001 6f 00000001 0001 6b 02 0001 70 ffffffff 00 00"),
        (4, "03 02 02 6f 02 02 6b 00 02 02 70 00 00 00 00 00"),
    ],
)
def test_request_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(REQUEST, version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (
            1,
            (
                "00000007 00000002 0000 ffff 02 0001 6f 00000001 0001 6b 0001 76 00 05 00 00000000"
                " 001d 0002 6e6f 02 0001 70 00000000"
            ),
        ),
        (
            4,
            (
                "00000007 03 0000 00 02 02 6f 02 02 6b 02 76 00 05 00 01 00 00 00 00"
                " 001d 03 6e6f 02 02 70 01 00 00"
            ),
        ),
    ],
)
def test_response_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(RESPONSE, version, wire)
