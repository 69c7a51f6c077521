"""Handlers of requests about a connection: ApiVersions, FindCoordinator, SASL and client telemetry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aioproducer import errors
from aioproducer._core.protocol import client, metadata, transactions
from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.produce import InitProducerIdRequest, ProduceRequest
from aioproducer.testing.faults import Refused
from aioproducer.testing.state import Call, Node

OFFERED: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {key: cls.VERSIONS for key, cls in sorted(REQUESTS.items())}
    | {InitProducerIdRequest.API_KEY: (0, 5)}  # version 6 needs `unstable.api.versions.enable`
)
"""Lowest and highest version of each API that brokers offer and accept, by API key."""

TELEMETRY: Final = frozenset(
    {client.GetTelemetrySubscriptionsRequest.API_KEY, client.PushTelemetryRequest.API_KEY}
)
"""API keys of telemetry, offered only with a subscription."""

TRANSACTION_VERSION = "transaction.version"
"""Feature that selects the behaviour of transactions (KIP-890)."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def api_versions(call: Call, request: metadata.ApiVersionsRequest) -> metadata.ApiVersionsResponse:
    """Return the APIs with their versions."""
    try:
        with call.faults.around():
            if call.version >= 3:  # with name and version of the client software (KIP-511)
                _check_software(request.client_software_name, request.client_software_version)
            _check_node(call, request)
            call.session.versions_sent = True
    except Refused as refused:
        return metadata.ApiVersionsResponse(error_code=refused.code, api_keys=[])
    level = call.state.coordinator.transaction_version
    return metadata.ApiVersionsResponse(
        error_code=0,
        api_keys=[
            _range(each)
            for each in OFFERED
            if each not in TELEMETRY or call.state.telemetry.subscription is not None
        ],
        supported_features=[
            metadata.SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=2)
        ],
        finalized_features_epoch=call.state.features_epoch,
        finalized_features=[
            metadata.FinalizedFeatureKey(
                name=TRANSACTION_VERSION, max_version_level=level, min_version_level=level
            )
        ]
        if level  # Kafka leaves out a feature at level 0
        else [],
    )


def _check_software(*named: str) -> None:
    if not all(map(_SOFTWARE.fullmatch, named)):
        raise Refused(errors.InvalidRequest, f"invalid name or version of the client software: {named}")


def _check_node(call: Call, request: metadata.ApiVersionsRequest) -> None:
    """Refuse a client that expects another cluster or node; clients send both ids or none (KIP-1242)."""
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (
        call.state.cluster_id,
        call.node_id,
    ):
        raise Refused(errors.RebootstrapRequired, f"this is node {call.node_id} of {call.state.cluster_id}")


def unknown_api_versions() -> metadata.ApiVersionsResponse:
    """Return the response, in version 0, to ApiVersions in a version that is too new (KIP-511)."""
    return metadata.ApiVersionsResponse(
        error_code=errors.UnsupportedVersion.code, api_keys=[_range(metadata.ApiVersionsRequest.API_KEY)]
    )


def _range(api_key: int) -> metadata.ApiVersion:
    lowest, highest = OFFERED[api_key]
    if api_key == ProduceRequest.API_KEY:
        lowest = 0  # Kafka announces version 0 for old clients, and rejects version 0 (KAFKA-18659)
    return metadata.ApiVersion(api_key=api_key, min_version=lowest, max_version=highest)


async def find_coordinator(
    call: Call, request: transactions.FindCoordinatorRequest
) -> transactions.FindCoordinatorResponse:
    """Return the coordinator of each group or transactional id."""
    many = call.version >= 4  # with several keys (KIP-699)
    found = [
        _coordinator(call, request.key_type, key)
        for key in (request.coordinator_keys if many else [request.key])
    ]
    if many:
        return transactions.FindCoordinatorResponse(coordinators=found)
    names = ("error_code", "error_message", "node_id", "host", "port")
    return transactions.FindCoordinatorResponse(**{name: getattr(found[0], name) for name in names})


def _node(call: Call, key_type: int, key: str) -> Node:
    if key_type not in {transactions.GROUP_KEY, transactions.TRANSACTION_KEY}:
        raise Refused(errors.InvalidRequest, f"unknown key type {key_type}")
    node = call.state.coordinator_node(key)
    if node is None:
        raise Refused(errors.CoordinatorNotAvailable, "no node is alive")
    return node


def _coordinator(call: Call, key_type: int, key: str) -> transactions.Coordinator:
    try:
        with call.faults.around():
            node = _node(call, key_type, key)
            if key_type == transactions.GROUP_KEY:
                call.state.groups.looked_up(key)
    except Refused as refused:
        return transactions.Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=refused.code,
            error_message=refused.message,
        )
    return transactions.Coordinator(
        key=key, node_id=node.node_id, host=node.address.host, port=node.address.port, error_message=None
    )


async def sasl_handshake(call: Call, request: client.SaslHandshakeRequest) -> client.SaslHandshakeResponse:
    """Begin an authentication with the mechanism of the client."""
    code = 0
    try:
        with call.faults.around():
            call.session.choose(request.mechanism, has_headers=call.version > 0)
    except Refused as refused:
        code = refused.code
        call.session.refuse()
    mechanisms = call.session.mechanisms if code in {0, errors.UnsupportedSaslMechanism.code} else []
    return client.SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)


async def sasl_authenticate(
    call: Call, request: client.SaslAuthenticateRequest
) -> client.SaslAuthenticateResponse:
    """Pass one message to the mechanism."""
    try:
        with call.faults.around():
            answer, lifetime_ms = call.session.authenticate(request.auth_bytes)
    except Refused as refused:
        call.session.refuse()
        return client.SaslAuthenticateResponse(
            error_code=refused.code, error_message=refused.message, auth_bytes=b""
        )
    return client.SaslAuthenticateResponse(
        error_code=0, error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms
    )


async def get_telemetry_subscriptions(
    call: Call, request: client.GetTelemetrySubscriptionsRequest
) -> client.GetTelemetrySubscriptionsResponse:
    """Return the subscription."""
    try:
        with call.faults.around():
            return call.state.telemetry.describe(request.client_instance_id)
    except Refused as refused:
        return client.GetTelemetrySubscriptionsResponse(error_code=refused.code)


async def push_telemetry(call: Call, request: client.PushTelemetryRequest) -> client.PushTelemetryResponse:
    """Accept pushed metrics."""
    try:
        with call.faults.around():
            call.state.telemetry.take(request)
    except Refused as refused:
        return client.PushTelemetryResponse(error_code=refused.code)
    return client.PushTelemetryResponse()
