"""Refused logins, at the start and later, and recovery from them."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import Producer
from aioproducer.errors import AuthenticationFailed, ProducerError, SaslAuthenticationFailed
from tests.scenarios.login_rig import FAILS_WITHIN_S, PROTOCOLS, producer_on, secured
from tests.scenarios.rig import TOPIC, cluster, now, scenario, values


@pytest.mark.parametrize("protocol", PROTOCOLS)
@scenario
async def test_start_with_a_wrong_password_fails_at_once(protocol: str) -> None:
    async with secured(security_protocol=protocol) as opened:
        producer = producer_on(opened, sasl_password="wrong")
        with pytest.raises(SaslAuthenticationFailed) as refused:
            await producer.start()
        assert now() < 1
        assert (refused.value.mechanism, refused.value.broker) == ("SCRAM-SHA-256", opened.bootstrap_servers)
        assert "hunter2" not in str(refused.value)
        assert not refused.value.fatal
        assert opened.request_count("sasl_handshake") == 1


@scenario
async def test_refused_login_counts_despite_other_addresses() -> None:
    """A silent bootstrap server and a closed port do not delay the error."""
    async with secured() as opened, secured() as silent, secured() as gone:
        silent.freeze_broker(1)
        await gone.stop_broker(1)
        servers = ",".join(each.bootstrap_servers for each in (silent, gone, opened))
        options = opened.client_options | {"sasl_password": "wrong"}
        with pytest.raises(SaslAuthenticationFailed):
            await Producer(servers, **options).start()
        assert now() < 2
        await gone.start_broker(1)


@scenario
async def test_unsupported_mechanism_error_lists_supported_ones() -> None:
    async with secured("PLAIN") as opened:
        with pytest.raises(AuthenticationFailed, match="it has PLAIN"):
            await producer_on(opened, sasl_mechanism="SCRAM-SHA-512").start()


@scenario
async def test_refused_login_fails_sends_soon_and_recovers() -> None:
    async with secured() as opened:
        async with producer_on(opened, reconnect_backoff_ms=100, reconnect_backoff_max_ms=1_000) as producer:
            await producer.send(TOPIC, b"before")
            opened.users["alice"] = "rotated"
            opened.disconnect(1)
            logins, began_at = opened.request_count("sasl_handshake"), now()
            for _ in range(20):
                called_at = now()
                with pytest.raises(ProducerError) as failed:
                    await producer.send(TOPIC, b"refused")
                assert now() - called_at <= FAILS_WITHIN_S
                causes = (failed.value, failed.value.__cause__)
                assert any(isinstance(each, AuthenticationFailed) for each in causes), causes
                assert not failed.value.possibly_persisted
                await asyncio.sleep(0.5)
            tried = opened.request_count("sasl_handshake") - logins
            # at once, after 1 s, 2 s, 4 s and so on; each may be a tenth sooner or later
            assert 4 <= tried <= 5
            assert now() - began_at < 16
            opened.users["alice"] = "hunter2"
            await asyncio.sleep(16)
            healed = await producer.send(TOPIC, b"after")
            assert healed.offset == 1
        assert values(opened) == [b"before", b"after"]


@scenario
async def test_calls_waiting_for_metadata_fail_when_logins_fail() -> None:
    async with secured(auto_create_topics=False) as opened, producer_on(opened) as producer:
        opened.users["alice"] = "rotated"
        opened.disconnect(1)
        with pytest.raises(ProducerError) as failed:
            await producer.send("another", b"value")
        assert isinstance(failed.value, AuthenticationFailed) or isinstance(
            failed.value.__cause__, AuthenticationFailed
        )
        assert now() <= FAILS_WITHIN_S


@scenario
async def test_short_login_refusal_fails_no_record() -> None:
    """A password may be rotated on one side slightly before the other side."""
    async with secured() as opened, producer_on(opened) as producer:
        await producer.send(TOPIC, b"before")
        opened.users["alice"] = "rotated"
        opened.disconnect(1)
        sending = asyncio.create_task(producer.send(TOPIC, b"meanwhile"))
        await asyncio.sleep(1)
        opened.users["alice"] = "hunter2"
        assert (await sending).offset == 1


@scenario
async def test_password_is_rotated_without_a_restart() -> None:
    async with secured() as opened:
        pairs = iter([("alice", "hunter2"), ("alice", "rotated")])
        options = {name: each for name, each in opened.client_options.items() if "username" not in name}
        del options["sasl_password"]
        options["sasl_credentials"] = lambda: next(pairs)
        async with Producer(opened.bootstrap_servers, **options) as producer:
            await producer.send(TOPIC, b"before")
            opened.users["alice"] = "rotated"
            opened.disconnect(1)
            await producer.send(TOPIC, b"after")
        assert values(opened) == [b"before", b"after"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@scenario
async def test_tls_and_a_login_add_three_round_trips(mechanism: str) -> None:
    """One round trip for TLS 1.3 and two for the login, without the time for key derivation."""
    latency_s = 0.1
    took_s = []
    async with cluster(latency_s=latency_s) as opened, producer_on(opened):
        took_s.append(now())
    async with secured(mechanism, security_protocol="SASL_SSL", latency_s=latency_s) as opened:
        began_at = now()
        async with producer_on(opened):
            took_s.append(now() - began_at)
    in_the_clear_s, secured_s = took_s
    assert secured_s == pytest.approx(in_the_clear_s + 3 * 2 * latency_s, abs=latency_s / 2)
