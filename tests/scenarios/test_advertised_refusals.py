"""Brokers whose advertised address refuses: its host name is not in the certificate, or the login fails there.

The bootstrap address is fine, so a producer starts. This is the most common mistake with TLS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioproducer import Producer, SaslAuthenticationFailed, SendManyError
from aioproducer._core.net.dial import routes
from aioproducer.errors import AuthenticationFailed, CommitFailed
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.login_rig import FAILS_WITHIN_S
from tests.scenarios.rig import TOPIC, cluster, now, scenario, values

IDEMPOTENT: dict[str, Any] = {}
PLAIN: dict[str, Any] = {"enable_idempotence": False}
WITHOUT_ACKS: dict[str, Any] = {"enable_idempotence": False, "acks": 0}
LINGERING: dict[str, Any] = {"linger_ms": 50, "compression_type": "gzip"}


def alias(node: int) -> str:
    """Return a host name of *node* that is in no certificate, with the length of the certified name."""
    return f"broker-{'abcdef'[node - 1]}.memory"


@asynccontextmanager
async def advertising(nodes: Iterable[int] = (1,), **options: Any) -> AsyncIterator[Cluster]:
    """Open a cluster over TLS of which *nodes* advertise another host name than that of their certificate."""
    options = {"security_protocol": "SSL", **options}
    async with cluster(**options) as opened:
        renamed = {}
        for node in nodes:
            host, _, port = opened.bootstrap_servers.split(",")[node - 1].rpartition(":")
            routes[alias(node), int(port)] = routes[host, int(port)]
            renamed[host.encode()] = alias(node).encode()

        def rename(frame: bytes) -> bytes:
            for host, other in renamed.items():
                frame = frame.replace(host, other)
            return frame

        for request in ("metadata", "find_coordinator"):
            opened.on(request, times=None).rewrite(rename)
        try:
            yield opened
        finally:
            for each in [each for each in routes if each[0].encode() in renamed.values()]:
                del routes[each]


def producer_on(opened: Cluster, **options: Any) -> Producer:
    return Producer(opened.bootstrap_servers, **{**opened.client_options, **options})


async def failure_of(sending: Any) -> BaseException:
    began_at = now()
    with pytest.raises(Exception) as failed:
        await sending
    assert now() - began_at < FAILS_WITHIN_S
    return failed.value


@pytest.mark.parametrize("options", [IDEMPOTENT, PLAIN, WITHOUT_ACKS, LINGERING])
@scenario
async def test_send_fails_when_advertised_name_is_in_no_certificate(options: dict[str, Any]) -> None:
    async with advertising() as opened, producer_on(opened, **options) as producer:
        for key in (None, b"key", b"key"):  # at first, and while it is refused
            error = await failure_of(producer.send(TOPIC, b"value", key=key))
            assert isinstance(error, AuthenticationFailed)
            assert not error.possibly_persisted
            assert "its certificate is not for broker-a.memory" in str(error)
        together = [producer.send(TOPIC, b"value", partition=0) for _ in range(500)]
        error = await failure_of(asyncio.gather(*together))
        assert isinstance(error, AuthenticationFailed)


@pytest.mark.parametrize("options", [IDEMPOTENT, PLAIN])
@scenario
async def test_send_many_fails_when_advertised_name_is_in_no_cert(options: dict[str, Any]) -> None:
    async with advertising(partitions=3) as opened, producer_on(opened, **options) as producer:
        keys = [b"%d" % number for number in range(1000)]
        error = await failure_of(producer.send_many(TOPIC, keys, keys=keys))
        assert isinstance(error, SendManyError)
        failures = error.result.failures
        assert len(failures) == 1000
        assert {type(each) for each in failures.values()} == {AuthenticationFailed}


@pytest.mark.parametrize("options", [IDEMPOTENT, PLAIN])
@scenario
async def test_send_succeeds_once_advertised_name_is_in_certificate(options: dict[str, Any]) -> None:
    async with advertising() as opened, producer_on(opened, **options) as producer:
        assert isinstance(await failure_of(producer.send(TOPIC, b"refused")), AuthenticationFailed)
        opened.renew_certificates(hosts=[alias(1), "broker-1.memory"])
        await asyncio.sleep(1.2)  # the longest pause between two attempts, with jitter
        assert (await producer.send(TOPIC, b"after")).offset == 0
        assert values(opened) == [b"after"]


@scenario
async def test_other_partitions_are_written_when_one_broker_refuses() -> None:
    for _ in range(5):  # which broker is asked for a producer id first is left to chance
        async with advertising([1], brokers=3, partitions=3) as opened, producer_on(opened) as producer:
            sends = [producer.send(TOPIC, b"value", partition=each % 3) for each in range(30)]
            began_at = now()
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert now() - began_at < FAILS_WITHIN_S
            refused = [isinstance(each, AuthenticationFailed) for each in outcomes]
            assert refused == [each % 3 == 0 for each in range(30)]


@pytest.mark.parametrize("options", [IDEMPOTENT, PLAIN])
@scenario
async def test_send_fails_when_advertised_address_refuses_the_login(
    options: dict[str, Any],
) -> None:
    secured: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanisms": ["PLAIN"],
        "users": {"alice": "x"},
    }
    async with advertising(**secured) as opened, producer_on(opened, **options) as producer:
        opened.on("sasl_authenticate", times=None).answer(SaslAuthenticationFailed)
        error = await failure_of(producer.send(TOPIC, b"value"))
        assert isinstance(error, SaslAuthenticationFailed)
        assert "broker-a.memory" in str(error)


@for_each("version", [0, 1, 2])
@for_each("brokers", [1, 3])
@scenario
async def test_transactional_start_fails_when_all_brokers_refuse(brokers: int, version: int) -> None:
    nodes = range(1, brokers + 1)
    async with advertising(nodes, brokers=brokers, transaction_version=version) as opened:
        producer = producer_on(opened, transactional_id="tx")
        error = await failure_of(producer.start())
        assert isinstance(error, AuthenticationFailed)
        assert error.broker.startswith("broker-")
        assert not error.fatal
        await producer.close()


@scenario
async def test_transactional_start_fails_when_the_coordinator_refuses() -> None:
    async with advertising([2], brokers=3) as opened:
        opened.move_coordinator("tx", to_broker=2)
        producer = producer_on(opened, transactional_id="tx")
        error = await failure_of(producer.start())
        assert isinstance(error, AuthenticationFailed)
        assert error.broker.startswith("broker-b.memory")
        opened.move_coordinator("tx", to_broker=1)
        async with producer, producer.transaction():
            await producer.send(TOPIC, b"value", partition=0)
        await producer.close()


@pytest.mark.parametrize("version", [0, 1, 2])
@scenario
async def test_send_in_a_transaction_fails_when_its_leader_refuses(version: int) -> None:
    async with advertising([2], brokers=3, partitions=3, transaction_version=version) as opened:
        opened.move_coordinator("tx", to_broker=1)
        async with producer_on(opened, transactional_id="tx") as producer:
            await producer.begin_transaction()
            error = await failure_of(producer.send(TOPIC, b"value", partition=1))
            assert isinstance(error, AuthenticationFailed)
            assert error.abortable
            assert isinstance(await failure_of(producer.commit_transaction()), CommitFailed)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(TOPIC, b"value", partition=0)


@scenario
async def test_send_in_transaction_fails_when_coordinator_refuses() -> None:
    """Below version 2 a partition has to be added to the transaction before the first Produce."""
    async with advertising([2], brokers=3, partitions=3, transaction_version=1) as opened:
        opened.move_coordinator("tx", to_broker=1)
        async with producer_on(opened, transactional_id="tx") as producer:
            opened.move_coordinator("tx", to_broker=2)
            opened.disconnect(1)
            await producer.begin_transaction()
            error = await failure_of(producer.send(TOPIC, b"value", partition=0))
            assert isinstance(error, AuthenticationFailed)
            assert error.abortable
            opened.move_coordinator("tx", to_broker=1)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(TOPIC, b"after", partition=0)


@scenario
async def test_offsets_fail_when_the_group_coordinator_refuses() -> None:
    async with advertising([2], brokers=3) as opened:
        opened.move_coordinator("tx", to_broker=1)
        opened.move_coordinator("group", to_broker=2)
        async with producer_on(opened, transactional_id="tx") as producer:
            transaction = await producer.begin_transaction()
            error = await failure_of(transaction.send_offsets({("in", 0): 1}, "group"))
            assert isinstance(error, AuthenticationFailed)
            assert error.abortable
            await producer.abort_transaction()
