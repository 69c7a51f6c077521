from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.client import (
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from aioproducer._core.protocol.metadata import ApiVersionsRequest
from aioproducer._core.protocol.produce import ProduceRequest
from aioproducer._core.protocol.schema import Request
from aioproducer._core.protocol.transactions import TRANSACTION_KEY, FindCoordinatorRequest
from aioproducer.errors import (
    ClusterAuthorizationFailed,
    CoordinatorLoadInProgress,
    IllegalSaslState,
    InvalidRequest,
    SaslAuthenticationFailed,
    TopicAuthorizationFailed,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from aioproducer.testing import Cluster
from aioproducer.testing.handlers.connect import OFFERED, TELEMETRY
from aioproducer.testing.handlers.table import APIS
from tests.unit.testing.client import Client

ASK_VERSIONS = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")


@pytest.mark.parametrize("version", range(ApiVersionsRequest.VERSIONS[1] + 1))
async def test_every_version_lists_what_is_served(client: Client, version: int) -> None:
    response = await client.ask(ASK_VERSIONS, version)
    served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    known = {key: versions for key, versions in OFFERED.items() if key not in TELEMETRY}
    assert served == {**known, ProduceRequest.API_KEY: (0, ProduceRequest.VERSIONS[1])}


async def test_version_too_new_is_answered_in_version_0(client: Client) -> None:
    client.writer.write(bytes.fromhex("0000000b 0012 0063 00000007 0001 78"))  # version 99, client "x"
    frame = await client.frame()
    assert frame == bytes.fromhex("00000007 0023 00000001 0012 0000 0005")
    assert int.from_bytes(frame[4:6], "big") == UnsupportedVersion.code


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a client", "1"), ("-a", "1"), ("a", "1!")])
async def test_client_must_name_itself_properly(client: Client, name: str, version: str) -> None:
    asked = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert (await client.ask(asked)).error_code == InvalidRequest.code
    assert (await client.ask(asked, 2)).error_code == 0


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [("ours", 1, 0), ("ours", 2, 129), ("other", 1, 129), (None, -1, 0)],
)
async def test_other_node_returns_rebootstrap_required(
    cluster: Cluster, client: Client, cluster_id: str | None, node_id: int, error: int
) -> None:
    cluster.cluster_id = "ours"
    asked = ApiVersionsRequest(
        client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    assert (await client.ask(asked)).error_code == error
    assert (await client.ask(asked, 4)).error_code == 0


async def test_script_can_refuse_api_versions(cluster: Cluster, client: Client) -> None:
    cluster.on("api_versions").answer(ClusterAuthorizationFailed)
    assert (await client.ask(ASK_VERSIONS)).error_code == ClusterAuthorizationFailed.code


@pytest.mark.parametrize("level", [1, 2])
async def test_api_versions_has_transaction_version(cluster: Cluster, client: Client, level: int) -> None:
    cluster.transaction_version = level
    told = await client.ask(ASK_VERSIONS)
    (feature,) = told.finalized_features
    assert (feature.name, feature.max_version_level) == ("transaction.version", level)
    assert [each.name for each in told.supported_features] == ["transaction.version"]


async def test_feature_at_level_0_is_left_out(cluster: Cluster, client: Client) -> None:
    before = await client.ask(ASK_VERSIONS)
    cluster.transaction_version = 0
    after = await client.ask(ASK_VERSIONS)
    assert after.finalized_features == []
    assert after.finalized_features_epoch > before.finalized_features_epoch >= 0


@pytest.mark.parametrize("version", range(FindCoordinatorRequest.VERSIONS[1] + 1))
async def test_every_version_names_the_coordinator(cluster: Cluster, client: Client, version: int) -> None:
    cluster.move_coordinator("g", to_broker=2)
    asked = (
        FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest(key="g")
    )
    address = cluster.bootstrap_servers.split(",")[1]
    for expected in (0, CoordinatorLoadInProgress.code):
        answer = await client.ask(asked, version)
        named = answer.coordinators[0] if version >= 4 else answer
        assert (named.error_code, named.node_id) == (expected, -1 if expected else 2)
        assert expected or f"{named.host}:{named.port}" == address
        cluster.on("find_coordinator").answer(CoordinatorLoadInProgress)


async def test_many_keys_have_a_coordinator_each(cluster: Cluster, client: Client) -> None:
    keys = [f"t{number}" for number in range(20)]
    answer = await client.ask(FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=keys))
    assert [each.key for each in answer.coordinators] == keys
    assert {each.node_id for each in answer.coordinators} == {1, 2}
    assert [each.node_id for each in answer.coordinators] == [cluster.coordinator(key) for key in keys]


async def test_unknown_key_type_is_refused(client: Client) -> None:
    answer = await client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=["s"]))
    assert answer.coordinators[0].error_code == InvalidRequest.code


def test_offered_versions_can_be_decoded() -> None:
    assert OFFERED.keys() == APIS.keys()
    for api_key, (lowest, highest) in OFFERED.items():
        request = REQUESTS[api_key]
        assert request.VERSIONS[0] <= lowest <= highest <= request.VERSIONS[1]


def test_transactions_without_a_timeout_are_not_offered() -> None:
    assert OFFERED[22] == (0, 5)


PLAIN = SaslHandshakeRequest(mechanism="PLAIN")
ALICE = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")


def secured() -> Cluster:
    return Cluster(
        topics={"orders": 1},
        transport="memory",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanisms=["PLAIN"],
        users={"alice": "secret"},
    )


async def test_handshake_response_lists_mechanisms() -> None:
    async with secured() as cluster:
        for mechanism, code in (("PLAIN", 0), ("SCRAM-SHA-256", UnsupportedSaslMechanism.code)):
            async with await Client.to(cluster) as client:
                answer = await client.ask(SaslHandshakeRequest(mechanism=mechanism))
                assert (answer.error_code, answer.mechanisms) == (code, ["PLAIN"])


@pytest.mark.parametrize("error", [IllegalSaslState, TopicAuthorizationFailed])
async def test_rule_refuses_handshake(error: type[IllegalSaslState]) -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        cluster.on("sasl_handshake").answer(error)
        answer = await client.ask(PLAIN)
        assert (answer.error_code, answer.mechanisms) == (error.code, [])
        assert await client.is_closed()


async def test_rule_refuses_authentication() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        cluster.on("sasl_authenticate").answer(SaslAuthenticationFailed)
        await client.ask(PLAIN)
        answer = await client.ask(ALICE)
        assert answer.error_code == SaslAuthenticationFailed.code
        assert answer.error_message == "injected by cluster.on()"
        assert answer.auth_bytes == b""
        assert await client.is_closed()


async def test_response_to_accepted_authentication_may_be_lost() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        cluster.on("sasl_authenticate").close(before_append=False)
        await client.ask(PLAIN)
        client.send(ALICE)
        assert await client.is_closed()


PUSH = PushTelemetryRequest(
    client_instance_id=bytes(16), subscription_id=1, terminating=False, compression_type=0, metrics=b""
)


@pytest.mark.parametrize("kind", ["get_telemetry_subscriptions", "push_telemetry"])
async def test_rules_and_receiver_refuse_telemetry(cluster: Cluster, client: Client, kind: str) -> None:
    cluster.subscribe_metrics("*")
    request: Request[Any] = GetTelemetrySubscriptionsRequest() if kind.startswith("get") else PUSH
    rule = cluster.on(kind).answer(89)
    assert (await client.ask(request)).error_code == 89
    assert rule.hits == 1
    assert cluster.request_count(kind) == 1
    of_its_own = 0 if kind.startswith("get") else 42
    assert (await client.ask(request)).error_code == of_its_own
