from __future__ import annotations

from aioproducer.protocol.apis import REQUESTS


def test_requests_are_found_by_their_api_key_and_name_a_response_with_the_same_versions() -> None:
    names = {api_key: request.__name__ for api_key, request in REQUESTS.items()}
    assert names == {
        0: "ProduceRequest",
        1: "FetchRequest",
        2: "ListOffsetsRequest",
        3: "MetadataRequest",
        10: "FindCoordinatorRequest",
        18: "ApiVersionsRequest",
        19: "CreateTopicsRequest",
        22: "InitProducerIdRequest",
    }
    for api_key, request in REQUESTS.items():
        response = request.RESPONSE
        assert response.__name__ == request.__name__.replace("Request", "Response")
        assert (api_key, api_key) == (request.API_KEY, response.API_KEY)
        assert (request.VERSIONS, request.FLEXIBLE_FROM) == (response.VERSIONS, response.FLEXIBLE_FROM)
