from __future__ import annotations

import pytest

from aioproducer._core.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from aioproducer.errors import (
    IllegalSaslState,
    SaslAuthenticationFailed,
    TopicAuthorizationFailed,
    UnsupportedSaslMechanism,
)
from aioproducer.testing import Cluster
from tests.unit.testing.client import Client

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


async def test_the_mechanisms_are_told_with_a_choice_and_instead_of_one() -> None:
    async with secured() as cluster:
        for mechanism, code in (("PLAIN", 0), ("SCRAM-SHA-256", UnsupportedSaslMechanism.code)):
            async with await Client.to(cluster) as client:
                answer = await client.ask(SaslHandshakeRequest(mechanism=mechanism))
                assert (answer.error_code, answer.mechanisms) == (code, ["PLAIN"])


@pytest.mark.parametrize("error", [IllegalSaslState, TopicAuthorizationFailed])
async def test_the_script_may_refuse_a_choice(error: type[IllegalSaslState]) -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        cluster.on("sasl_handshake").answer(error)
        answer = await client.ask(PLAIN)
        assert (answer.error_code, answer.mechanisms) == (error.code, [])
        assert await client.is_closed()


async def test_the_script_may_refuse_a_login_and_has_the_last_word() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        cluster.on("sasl_authenticate").answer(SaslAuthenticationFailed)
        await client.ask(PLAIN)
        answer = await client.ask(ALICE)
        assert answer.error_code == SaslAuthenticationFailed.code
        assert answer.error_message == "a fault of the test's script"
        assert answer.auth_bytes == b""
        assert await client.is_closed()


async def test_a_login_may_be_lost_after_it_was_taken() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        cluster.on("sasl_authenticate").close(before_append=False)
        await client.ask(PLAIN)
        client.send(ALICE)
        assert await client.is_closed()
