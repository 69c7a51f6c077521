"""The order of requests, by raw messages; the expected responses are those of Apache Kafka."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest

from aioproducer._core.address import Address
from aioproducer._core.protocol.client import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aioproducer._core.protocol.metadata import ApiVersionsRequest
from aioproducer._core.protocol.produce import InitProducerIdRequest
from aioproducer._core.protocol.schema import Request
from aioproducer._core.security.passwords import Credentials, Login, Scram
from aioproducer._core.security.secret import Secret
from aioproducer.errors import (
    IllegalSaslState,
    InvalidRequest,
    NotEnoughReplicas,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from aioproducer.testing import Cluster, in_virtual_time
from tests.unit.testing.batches import batch
from tests.unit.testing.client import Client, metadata_request, produce_request

VERSIONS = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")
ASK_ID = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
ALICE = b"\0alice\0secret"
USERS = {"alice": "secret", "bob": "secret"}


def secured(**options: Any) -> Cluster:
    given: dict[str, Any] = {"users": USERS} | options
    return Cluster(
        topics={"orders": 1},
        transport="memory",
        security_protocol="SASL_PLAINTEXT",
        auto_create_topics=False,
        **given,
    )


async def handshake(client: Client, mechanism: str = "PLAIN") -> SaslHandshakeResponse:
    return await client.ask(SaslHandshakeRequest(mechanism=mechanism))


async def authenticate(client: Client, message: bytes = ALICE) -> SaslAuthenticateResponse:
    return await client.ask(SaslAuthenticateRequest(auth_bytes=message))


async def log_in(client: Client, message: bytes = ALICE) -> SaslAuthenticateResponse:
    assert (await handshake(client)).error_code == 0
    return await authenticate(client, message)


async def test_login_opens_the_connection() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        assert (await client.ask(VERSIONS)).error_code == 0
        chosen = await handshake(client)
        assert (chosen.error_code, chosen.mechanisms) == (0, ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
        answer = await authenticate(client)
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
        assert (await client.produce()).error_code == 0
        assert (await client.ask(VERSIONS)).error_code == 0  # now as often as one likes
        assert (await client.ask(VERSIONS)).error_code == 0
        assert cluster.request_count("sasl_authenticate") == 1


@pytest.mark.parametrize("version", range(SaslAuthenticateRequest.VERSIONS[1] + 1))
async def test_every_version_of_authenticate_is_served(version: int) -> None:
    async with secured(session_lifetime_s=60) as cluster, await Client.to(cluster) as client:
        await handshake(client)
        answer = await client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), version)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000 if version else 0)


async def test_login_and_requests_may_come_in_one_write() -> None:
    requests: list[Request[Any]] = [
        VERSIONS,
        SaslHandshakeRequest(mechanism="PLAIN"),
        SaslAuthenticateRequest(auth_bytes=ALICE),
        metadata_request("orders"),
    ]
    async with secured() as cluster, await Client.to(cluster) as client:
        for request in requests:
            client.send(request)
        answers = [await client.answer_to(request) for request in requests]
        assert len(answers[-1].topics) == 1


async def test_version_too_new_may_be_asked_once_more() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        client.writer.write(bytes.fromhex("0000000b 0012 0063 00000001 0001 78"))  # version 99, client "x"
        assert (await client.frame())[4:6] == bytes.fromhex("0023")
        misnamed = ApiVersionsRequest(client_software_name="?", client_software_version="1")
        client.writer.write(bytes.fromhex("0000000b 0012 0063 00000001 0001 78"))
        await client.frame()
        assert (await client.ask(misnamed)).error_code == InvalidRequest.code
        assert (await client.ask(VERSIONS)).error_code == 0


@pytest.mark.parametrize("request_", [ASK_ID, metadata_request(), SaslAuthenticateRequest(auth_bytes=ALICE)])
async def test_request_before_handshake_ends_connection(request_: Request[Any]) -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        client.send(request_)
        assert await client.is_closed()


async def test_second_api_versions_ends_the_connection() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        await client.ask(VERSIONS)
        client.send(VERSIONS)
        assert await client.is_closed()


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", ""])
async def test_unknown_mechanism_is_answered_with_those_that_there_are(mechanism: str) -> None:
    async with secured(sasl_mechanisms=["PLAIN"]) as cluster, await Client.to(cluster) as client:
        answer = await handshake(client, mechanism)
        assert (answer.error_code, answer.mechanisms) == (UnsupportedSaslMechanism.code, ["PLAIN"])
        assert await client.is_closed()


async def test_tokens_after_handshake_v0_have_no_header() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        answer = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        assert answer.error_code == 0
        client.writer.write(len(ALICE).to_bytes(4, "big") + ALICE)
        assert await client.frame() == b""
        client.send(ASK_ID)
        assert await client.frame()
        assert cluster.request_count("sasl_authenticate") == 1


async def test_refused_token_without_header_ends_the_connection() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        _ = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        client.writer.write(b"\0\0\0\x0c\0alice\0wrong")
        assert await client.is_closed()


async def test_wrong_password_ends_the_connection() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        answer = await log_in(client, b"\0alice\0wrong")
        assert answer.error_code == SaslAuthenticationFailed.code
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert await client.is_closed()


async def test_scram_hides_whether_the_user_exists() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        await handshake(client, "SCRAM-SHA-256")
        answer = await authenticate(client, b"n,,n=nobody,r=abc")
        assert answer.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
        )
        assert await client.is_closed()


async def test_refused_token_login_ends_after_the_reply_of_the_client() -> None:
    async with secured(users=None, tokens={"good": "alice"}) as cluster, await Client.to(cluster) as client:
        await handshake(client, "OAUTHBEARER")
        answer = await authenticate(client, b"n,,\x01auth=Bearer bad\x01\x01")
        assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
        assert answer.session_lifetime_ms == 0
        answer = await authenticate(client, b"\x01")
        assert answer.error_code == SaslAuthenticationFailed.code
        assert answer.error_message == '{"status":"invalid_token"}'
        assert await client.is_closed()


@pytest.mark.parametrize("request_", [ASK_ID, VERSIONS, SaslHandshakeRequest(mechanism="PLAIN")])
async def test_request_during_exchange_ends_connection(
    request_: Request[Any],
) -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        await handshake(client)
        assert (await client.ask(request_)).error_code == IllegalSaslState.code
        assert await client.is_closed()


async def test_batch_during_the_exchange_is_refused_and_not_appended() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        await handshake(client, "SCRAM-SHA-256")
        assert (await client.produce()).error_code == IllegalSaslState.code
        assert await client.is_closed()
        assert cluster.records("orders", 0) == []


async def test_unexpected_batch_with_acks_0_ends_exchange() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        await handshake(client)
        client.send(produce_request({0: batch()}, acks=0))
        assert await client.is_closed()
        assert cluster.records("orders", 0) == []


async def test_listener_without_sasl_refuses_logins_and_stays_open() -> None:
    async with Cluster(transport="memory") as cluster, await Client.to(cluster) as client:
        for _ in range(2):
            answer = await handshake(client)
            assert (answer.error_code, answer.mechanisms) == (IllegalSaslState.code, [])
            assert (await authenticate(client)).error_code == IllegalSaslState.code
        assert (await client.ask(VERSIONS)).error_code == 0


async def test_session_without_end_is_not_renewed() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        await log_in(client)
        assert (await handshake(client)).error_code == IllegalSaslState.code
        assert (await authenticate(client)).error_code == IllegalSaslState.code
        assert (await client.produce()).error_code == 0


@in_virtual_time
async def test_session_that_is_over_ends_with_the_next_request() -> None:
    async with secured(session_lifetime_s=3) as cluster, await Client.to(cluster) as client:
        assert (await log_in(client)).session_lifetime_ms == 3000
        await asyncio.sleep(3)
        assert (await client.produce()).error_code == 0
        await asyncio.sleep(0.1)
        client.send(produce_request({0: batch()}))
        assert await client.is_closed()
        assert len(cluster.records("orders", 0)) == 1


@in_virtual_time
async def test_late_login_renews_the_session() -> None:
    async with secured(session_lifetime_s=3) as cluster, await Client.to(cluster) as client:
        await log_in(client)
        await asyncio.sleep(60)
        assert (await log_in(client)).session_lifetime_ms == 3000
        await asyncio.sleep(2.9)
        assert (await client.produce()).error_code == 0


async def test_plain_is_renewed_between_pipelined_requests() -> None:
    async with secured(session_lifetime_s=60) as cluster, await Client.to(cluster) as client:
        await log_in(client)
        sent: list[Request[Any]] = [
            produce_request({0: batch()}),
            SaslHandshakeRequest(mechanism="PLAIN"),
            SaslAuthenticateRequest(auth_bytes=ALICE),
            produce_request({0: batch()}),
        ]
        for request in sent:
            client.send(request)
        for request in sent:
            await client.answer_to(request)
        assert len(cluster.records("orders", 0)) == 2


@in_virtual_time
async def test_session_is_renewed_once_a_second() -> None:
    async with secured(session_lifetime_s=60) as cluster, await Client.to(cluster) as client:
        await log_in(client)
        assert (await log_in(client)).error_code == 0  # the first is free
        await asyncio.sleep(0.9)
        assert (await handshake(client)).error_code == IllegalSaslState.code
        assert (await client.produce()).error_code == 0
        await asyncio.sleep(0.1)
        assert (await log_in(client)).error_code == 0


async def test_session_stays_that_of_its_user() -> None:
    async with secured(session_lifetime_s=60) as cluster, await Client.to(cluster) as client:
        await log_in(client)
        answer = await log_in(client, b"\0bob\0secret")
        assert answer.error_code == SaslAuthenticationFailed.code
        assert "Cannot change principals" in str(answer.error_message)
        assert await client.is_closed()


async def test_session_keeps_its_mechanism() -> None:
    async with secured(session_lifetime_s=60) as cluster, await Client.to(cluster) as client:
        await log_in(client)
        assert (await handshake(client, "SCRAM-SHA-256")).error_code == 0
        client.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"))
        assert await client.is_closed()


@pytest.mark.parametrize(
    ("mechanism", "message"), [("PLAIN", b"\0alice\0old"), ("PLAIN", b""), ("GSSAPI", None)]
)
async def test_renewal_that_fails_ends_the_connection(mechanism: str, message: bytes | None) -> None:
    async with secured(session_lifetime_s=60) as cluster, await Client.to(cluster) as client:
        await log_in(client)
        answer = await handshake(client, mechanism)
        assert (answer.error_code == 0) == (message is not None)
        if message is not None:
            failed = await authenticate(client, message)
            assert failed.error_code == SaslAuthenticationFailed.code
            assert message or "re-authentication" in str(failed.error_message)
        assert await client.is_closed()


async def test_passwords_change_for_the_next_login() -> None:
    async with secured() as cluster:
        async with await Client.to(cluster) as client:
            await log_in(client)
            cluster.users["alice"] = "new"
            assert (await client.produce()).error_code == 0
        async with await Client.to(cluster) as client:
            assert (await log_in(client)).error_code == SaslAuthenticationFailed.code
        async with await Client.to(cluster) as client:
            assert (await log_in(client, b"\0alice\0new")).error_code == 0


async def test_script_strikes_logins() -> None:
    async with secured() as cluster:
        cluster.on("sasl_handshake").answer(UnsupportedSaslMechanism)
        refusing = cluster.on("sasl_authenticate").answer(NotEnoughReplicas)
        closing = cluster.on("sasl_authenticate").close()
        async with await Client.to(cluster) as client:
            assert (await handshake(client)).error_code == UnsupportedSaslMechanism.code
            assert await client.is_closed()
        async with await Client.to(cluster) as client:
            assert (await log_in(client)).error_code == NotEnoughReplicas.code
            assert await client.is_closed()
        async with await Client.to(cluster) as client:
            await handshake(client)
            client.send(SaslAuthenticateRequest(auth_bytes=ALICE))
            assert await client.is_closed()
        async with await Client.to(cluster) as client:
            assert (await log_in(client)).error_code == 0
        assert (refusing.hits, closing.hits) == (1, 1)


@in_virtual_time
async def test_login_that_is_throttled_is_late() -> None:
    async with secured() as cluster, await Client.to(cluster) as client:
        cluster.on(times=None).throttle(100)
        await client.ask(VERSIONS)
        assert (await log_in(client)).error_code == 0
        assert asyncio.get_running_loop().time() == pytest.approx(0.3)


@in_virtual_time
async def test_login_under_tls_takes_no_real_time() -> None:
    async with Cluster(
        topics={"orders": 1}, transport="memory", latency_s=0.05, security_protocol="SASL_SSL", users=USERS
    ) as cluster:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            async with await Client.to(cluster) as client:
                began_at = asyncio.get_running_loop().time()
                trust = ssl.create_default_context(cadata=cluster.ca_pem)
                await client.writer.start_tls(trust, server_hostname="broker-1.memory")
                await handshake(client, mechanism)
                scram = Scram(mechanism, Credentials(Login("bob", Secret("secret"))))
                message = await scram.start(Address("broker-1.memory", 9092))
                for _ in range(2):
                    message = await scram.respond((await authenticate(client, message)).auth_bytes)
                assert scram.complete
                assert (await client.produce()).error_code == 0
                # TLS, the handshake, two messages of SCRAM, a batch
                assert asyncio.get_running_loop().time() - began_at == pytest.approx(5 * 0.1)
