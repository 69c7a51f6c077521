from __future__ import annotations

from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.schema import NEVER


def test_requests_are_registered_by_api_key_with_their_response() -> None:
    names = {api_key: request.__name__ for api_key, request in REQUESTS.items()}
    assert names == {
        0: "ProduceRequest",
        1: "FetchRequest",
        2: "ListOffsetsRequest",
        3: "MetadataRequest",
        9: "OffsetFetchRequest",
        10: "FindCoordinatorRequest",
        17: "SaslHandshakeRequest",
        18: "ApiVersionsRequest",
        19: "CreateTopicsRequest",
        22: "InitProducerIdRequest",
        24: "AddPartitionsToTxnRequest",
        25: "AddOffsetsToTxnRequest",
        26: "EndTxnRequest",
        28: "TxnOffsetCommitRequest",
        32: "DescribeConfigsRequest",
        36: "SaslAuthenticateRequest",
        61: "DescribeProducersRequest",
        65: "DescribeTransactionsRequest",
        66: "ListTransactionsRequest",
        71: "GetTelemetrySubscriptionsRequest",
        72: "PushTelemetryRequest",
    }
    for api_key, request in REQUESTS.items():
        response = request.RESPONSE
        assert response.__name__ == request.__name__.replace("Request", "Response")
        assert (api_key, api_key) == (request.API_KEY, response.API_KEY)
        assert (request.VERSIONS, request.FLEXIBLE_FROM) == (response.VERSIONS, response.FLEXIBLE_FROM)


def test_client_pauses_from_matches_kafka_for_every_response() -> None:
    """As in `shouldClientThrottle` of Kafka's client, and in the message definitions where brokers respond first."""
    assert {
        request.RESPONSE.__name__: request.RESPONSE.CLIENT_PAUSES_FROM for request in REQUESTS.values()
    } == {
        "ProduceResponse": 6,
        "FetchResponse": 8,
        "ListOffsetsResponse": 3,
        "MetadataResponse": 6,
        "FindCoordinatorResponse": 2,
        "ApiVersionsResponse": 2,
        "CreateTopicsResponse": 3,
        "InitProducerIdResponse": 1,
        "AddPartitionsToTxnResponse": 1,
        "AddOffsetsToTxnResponse": 1,
        "EndTxnResponse": 1,
        "TxnOffsetCommitResponse": 1,
        "OffsetFetchResponse": 4,
        "DescribeConfigsResponse": 2,
        "DescribeProducersResponse": 0,
        "DescribeTransactionsResponse": 0,
        "ListTransactionsResponse": 0,
        "GetTelemetrySubscriptionsResponse": 0,
        "PushTelemetryResponse": 0,
        "SaslHandshakeResponse": NEVER,
        "SaslAuthenticateResponse": NEVER,
    }
