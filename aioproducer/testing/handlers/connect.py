"""ApiVersions, InitProducerId, FindCoordinator: what clients ask before they come to the point."""

from __future__ import annotations

import re

from aioproducer.errors import CoordinatorNotAvailable, InvalidRequest, NotCoordinator, UnsupportedVersion
from aioproducer.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aioproducer.protocol.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.produce import ProduceRequest
from aioproducer.testing.handlers.call import Call
from aioproducer.testing.handlers.offered import OFFERED
from aioproducer.testing.refusal import Refused

SOFTWARE_NAMES_SINCE = 3
"""KIP-511."""
MANY_KEYS_SINCE = 4
"""KIP-699."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List the APIs and versions."""
    try:
        with call.strike.around():
            if call.version >= SOFTWARE_NAMES_SINCE:
                _check_software(request.client_software_name, request.client_software_version)
            call.session.tell_versions()
    except Refused as refused:
        return ApiVersionsResponse(error_code=refused.code, api_keys=[])
    return ApiVersionsResponse(error_code=0, api_keys=[_range(each) for each in OFFERED])


def _check_software(*named: str) -> None:
    if not all(map(_SOFTWARE.fullmatch, named)):
        raise Refused(InvalidRequest, f"{named} cannot be a client's name and version")


def unknown_api_versions() -> ApiVersionsResponse:
    """Answer, in version 0, a request for ApiVersions in a version that is too new (KIP-511)."""
    return ApiVersionsResponse(
        error_code=UnsupportedVersion.code, api_keys=[_range(ApiVersionsRequest.API_KEY)]
    )


def _range(api_key: int) -> ApiVersion:
    lowest, highest = OFFERED[api_key]
    if api_key == ProduceRequest.API_KEY:
        lowest = 0  # what Kafka says for the sake of old clients, and does not keep (KAFKA-18659)
    return ApiVersion(api_key=api_key, min_version=lowest, max_version=highest)


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Give out a new id; without a transactional id nobody carries on an old one."""
    try:
        with call.strike.around():
            _check_no_transaction(request)
            producer_id = next(call.state.new_producer_ids)
    except Refused as refused:
        return InitProducerIdResponse(error_code=refused.code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _check_no_transaction(request: InitProducerIdRequest) -> None:
    if request.transactional_id is not None:
        raise Refused(NotCoordinator, "this broker knows no transactions")


async def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Know no coordinator: there are no groups and no transactions here."""
    code = CoordinatorNotAvailable.code
    try:
        with call.strike.around():
            pass
    except Refused as refused:
        code = refused.code
    if call.version < MANY_KEYS_SINCE:
        return FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code)
            for key in request.coordinator_keys
        ]
    )
