from __future__ import annotations

import pytest

from aioproducer._core.protocol.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.unit._core.protocol.golden import TOPIC_ID, check

REQUEST = CreateTopicsRequest(
    topics=[
        CreatableTopic(
            name="orders",
            num_partitions=3,
            replication_factor=1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=(1,))],
            configs=[CreatableTopicConfig(name="k", value=None)],
        )
    ],
    timeout_ms=1000,
    validate_only=True,
)
RESPONSE = CreateTopicsResponse(
    topics=[
        CreatableTopicResult(
            name="orders",
            topic_id=TOPIC_ID,
            error_code=36,
            error_message="exists",
            topic_config_error_code=29,
            configs=None,
        )
    ]
)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (
            2,
            (
                "00000001 0006 6f7264657273 00000003 0001 00000001 00000000 00000001 00000001"
                " 00000001 0001 6b ffff 000003e8 01"
            ),
        ),
        (5, "02 07 6f7264657273 00000003 0001 02 00000000 02 00000001 00 02 02 6b 00 00 00 000003e8 01 00"),
    ],
)
def test_the_request_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(REQUEST, version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (2, "00000000 00000001 0006 6f7264657273 0024 0006 657869737473"),
        (5, "00000000 02 07 6f7264657273 0024 07 657869737473 ffffffff ffff 00 01 00 02 001d 00"),
        (
            7,
            "00000000 02 07 6f7264657273"
            + TOPIC_ID.hex()
            + "0024 07 657869737473 ffffffff ffff 00 01 00 02 001d 00",
        ),
    ],
)
def test_the_response_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(RESPONSE, version, wire)
