"""Starts with several bootstrap servers of which some refuse the login, or show a certificate that does not verify."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer import Producer, SaslAuthenticationFailed
from aioproducer.errors import AuthenticationFailed, RebootstrapRequired
from aioproducer.testing import Cluster
from tests.scenarios.login_rig import PROTOCOLS, producer_on, secured
from tests.scenarios.rig import TOPIC, cluster, now, scenario

CERTIFICATES: dict[str, dict[str, Any]] = {
    "foreign": {"new_authority": True},
    "expired": {"expired": True},
    "of another host": {"hosts": ["elsewhere.example"]},
}


def refuse(opened: Cluster, *nodes: int) -> None:
    for node in nodes:
        opened.on("sasl_authenticate", node=node, times=None).answer(SaslAuthenticationFailed)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("refusing", [(1,), (1, 2)])
@scenario
async def test_start_succeeds_when_other_servers_refuse_the_login(
    protocol: str, refusing: tuple[int, ...]
) -> None:
    async with secured("PLAIN", security_protocol=protocol, brokers=3) as opened:
        refuse(opened, *refusing)
        for _ in range(10):
            began_at = now()
            producer = producer_on(opened)
            await producer.start()
            assert now() - began_at < 1
            await producer.close()


@pytest.mark.parametrize("renewed", CERTIFICATES)
@scenario
async def test_start_succeeds_when_another_certificate_does_not_verify(renewed: str) -> None:
    async with cluster(security_protocol="SSL") as opened, cluster(security_protocol="SSL") as other:
        other.renew_certificates(**CERTIFICATES[renewed])
        servers = f"{other.bootstrap_servers},{opened.bootstrap_servers}"
        for _ in range(5):
            async with Producer(servers, **opened.client_options) as producer:
                await producer.send(TOPIC, b"value")


@scenario
async def test_start_asks_three_servers_when_all_refuse() -> None:
    async with secured("PLAIN", brokers=6) as opened:
        refuse(opened, *range(1, 7))
        with pytest.raises(SaslAuthenticationFailed) as refused:
            await producer_on(opened).start()
        assert now() < 1
        assert opened.request_count("sasl_authenticate") == 3
        asked = [each for each in opened.bootstrap_servers.split(",") if each in str(refused.value)]
        assert len(asked) == 3
        assert refused.value.broker in asked
        assert refused.value.mechanism == "PLAIN"


@scenario
async def test_start_lists_servers_that_refuse_and_that_are_away() -> None:
    async with secured("PLAIN", brokers=3) as opened:
        refuse(opened, 2)
        for node in (1, 3):
            await opened.stop_broker(node)
        with pytest.raises(AuthenticationFailed) as refused:
            await producer_on(opened).start()
        assert all(each in str(refused.value) for each in opened.bootstrap_servers.split(","))
        for node in (1, 3):
            await opened.start_broker(node)


@scenario
async def test_rebootstrap_succeeds_when_another_server_refuses() -> None:
    async with secured("PLAIN", brokers=3, auto_create_topics=True) as opened:
        for number in range(10):
            async with producer_on(opened) as producer:
                rule = opened.on("sasl_authenticate", node=1, times=None).answer(SaslAuthenticationFailed)
                opened.disconnect(1)
                opened.on("metadata").answer(RebootstrapRequired)
                assert await producer.partitions_for(f"topic-{number}")
                rule.remove()
