from __future__ import annotations

import pytest

from aioproducer.errors import (
    ClusterAuthorizationFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRequest,
    NotCoordinator,
    UnsupportedVersion,
)
from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.find_coordinator import FindCoordinatorRequest
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.produce import ProduceRequest
from aioproducer.testing import Cluster
from aioproducer.testing.handlers.offered import OFFERED
from tests.unit.testing.client import Client

ASK_VERSIONS = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")
ASK_ID = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)


@pytest.mark.parametrize("version", range(ApiVersionsRequest.VERSIONS[1] + 1))
async def test_every_version_lists_what_is_served(client: Client, version: int) -> None:
    response = await client.ask(ASK_VERSIONS, version)
    served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert served == {**OFFERED, ProduceRequest.API_KEY: (0, ProduceRequest.VERSIONS[1])}


async def test_a_version_too_new_is_answered_in_version_0(client: Client) -> None:
    client.writer.write(bytes.fromhex("0000000b 0012 0063 00000007 0001 78"))  # version 99, client "x"
    frame = await client.frame()
    assert frame == bytes.fromhex("00000007 0023 00000001 0012 0000 0004")
    assert int.from_bytes(frame[4:6], "big") == UnsupportedVersion.code


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a client", "1"), ("-a", "1"), ("a", "1!")])
async def test_a_client_must_name_itself_properly(client: Client, name: str, version: str) -> None:
    asked = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert (await client.ask(asked)).error_code == InvalidRequest.code
    assert (await client.ask(asked, 2)).error_code == 0


async def test_the_script_can_refuse_api_versions(cluster: Cluster, client: Client) -> None:
    cluster.on("api_versions").answer(ClusterAuthorizationFailed)
    assert (await client.ask(ASK_VERSIONS)).error_code == ClusterAuthorizationFailed.code


@pytest.mark.parametrize("version", range(6))
async def test_every_version_gives_each_producer_an_id_of_its_own(client: Client, version: int) -> None:
    first, second = await client.ask(ASK_ID, version), await client.ask(ASK_ID, version)
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (0, 0, 0)
    assert 0 <= first.producer_id < second.producer_id


async def test_an_idempotent_producer_that_asks_again_gets_a_new_id(client: Client) -> None:
    first = await client.ask(ASK_ID)
    again = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1, producer_id=first.producer_id, producer_epoch=3
    )
    second = await client.ask(again)
    assert second.producer_id != first.producer_id
    assert second.producer_epoch == 0


async def test_nodes_do_not_give_out_the_same_id(cluster: Cluster, client: Client) -> None:
    async with await Client.to(cluster, 2) as other:
        assert (await client.ask(ASK_ID)).producer_id != (await other.ask(ASK_ID)).producer_id


async def test_transactional_ids_are_refused(cluster: Cluster, client: Client) -> None:
    asked = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1)
    answer = await client.ask(asked)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NotCoordinator.code, -1, -1)


@pytest.mark.parametrize("version", range(FindCoordinatorRequest.VERSIONS[1] + 1))
async def test_there_is_no_coordinator(cluster: Cluster, client: Client, version: int) -> None:
    asked = (
        FindCoordinatorRequest(coordinator_keys=["g", "h"])
        if version >= 4
        else FindCoordinatorRequest(key="g")
    )
    for expected in (CoordinatorNotAvailable, CoordinatorLoadInProgress):
        answer = await client.ask(asked, version)
        codes = [each.error_code for each in answer.coordinators] or [answer.error_code]
        assert set(codes) == {expected.code}
        cluster.on("find_coordinator").answer(CoordinatorLoadInProgress)
