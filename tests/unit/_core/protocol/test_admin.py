from __future__ import annotations

import pytest

from aioproducer._core.protocol.admin import (
    TOPIC_RESOURCE,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
    TransactionState,
)
from aioproducer._core.protocol.schema import encode
from aioproducer.errors import UnsupportedVersion
from tests.unit._core.protocol.golden import TOPIC_ID, check

CREATE_TOPICS_REQUEST = CreateTopicsRequest(
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
CREATE_TOPICS_RESPONSE = CreateTopicsResponse(
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
def test_create_topics_request_matches_golden_bytes(version: int, wire: str) -> None:
    check(CREATE_TOPICS_REQUEST, version, wire)


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
def test_create_topics_response_matches_golden_bytes(version: int, wire: str) -> None:
    check(CREATE_TOPICS_RESPONSE, version, wire)


DESCRIBE_CONFIGS_REQUEST = DescribeConfigsRequest(
    resources=[
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="o", configuration_keys=["k"]),
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="p", configuration_keys=None),
    ]
)
DESCRIBE_CONFIGS_RESPONSE = DescribeConfigsResponse(
    throttle_time_ms=7,
    results=[
        DescribeConfigsResult(
            error_message=None,
            resource_type=TOPIC_RESOURCE,
            resource_name="o",
            configs=[DescribeConfigsResourceResult(name="k", value="v", config_source=5, documentation=None)],
        ),
        DescribeConfigsResult(
            error_code=29, error_message="no", resource_type=TOPIC_RESOURCE, resource_name="p"
        ),
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
def test_describe_configs_request_matches_golden_bytes(version: int, wire: str) -> None:
    check(DESCRIBE_CONFIGS_REQUEST, version, wire)


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
def test_describe_configs_response_matches_golden_bytes(version: int, wire: str) -> None:
    check(DESCRIBE_CONFIGS_RESPONSE, version, wire)


ONGOING_OF_FIVE = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=(5,))


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "02 08 4f6e676f696e67 02 0000000000000005 00"),
        (1, "02 08 4f6e676f696e67 02 0000000000000005 ffffffffffffffff 00"),
        (2, "02 08 4f6e676f696e67 02 0000000000000005 ffffffffffffffff 00 00"),
    ],
)
def test_list_transactions_request_matches_golden_bytes(version: int, wire: str) -> None:
    check(ONGOING_OF_FIVE, version, wire)


def test_pattern_is_refused_by_version_1() -> None:
    asked = ListTransactionsRequest(duration_filter=9, transactional_id_pattern="t.*")
    check(asked, 2, "01 01 0000000000000009 04 742e2a 00")
    with pytest.raises(UnsupportedVersion, match=r"version 1, .* has no transactional_id_pattern"):
        encode(asked, 1)


def test_list_transactions_response_matches_golden_bytes() -> None:
    state = TransactionState(transactional_id="t", producer_id=5, transaction_state="Ongoing")
    response = ListTransactionsResponse(
        throttle_time_ms=1, unknown_state_filters=["X"], transaction_states=[state]
    )
    check(response, 0, "00000001 0000 02 02 58 02 02 74 0000000000000005 08 4f6e676f696e67 00 00")


def test_partitions_are_asked_about() -> None:
    request = DescribeProducersRequest(topics=[TopicRequest(name="o", partition_indexes=(0, 3))])
    check(request, 0, "02 02 6f 03 00000000 00000003 00 00")


def test_describe_producers_response_matches_golden_bytes() -> None:
    producer = ProducerState(
        producer_id=5,
        producer_epoch=2,
        last_sequence=9,
        last_timestamp=7,
        coordinator_epoch=0,
        current_txn_start_offset=4,
    )
    partition = PartitionResponse(partition_index=3, active_producers=[producer])
    wire = (
        "00000001 02 02 6f 02 00000003 0000 00 02"
        " 0000000000000005 00000002 00000009 0000000000000007 00000000 0000000000000004 00 00 00 00"
    )
    topics = [TopicResponse(name="o", partitions=[partition])]
    check(DescribeProducersResponse(throttle_time_ms=1, topics=topics), 0, wire)
