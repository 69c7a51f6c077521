"""`DeliveryTimeout.reason`: each reason alone, and beside others."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import time
from collections.abc import Mapping
from typing import Any

import pytest

from aioproducer import DeliveryTimeout, Producer, SendManyError
from aioproducer.errors import (
    CoordinatorNotAvailable,
    NotEnoughReplicas,
    SaslAuthenticationFailed,
    TimeoutReason,
)
from aioproducer.testing import Cluster
from tests.scenarios.login_rig import producer_on, secured
from tests.scenarios.rig import TOPIC, cluster, now, producing, scenario

SHORT: Mapping[str, Any] = {"linger_ms": 0, "request_timeout_ms": 1_400, "delivery_timeout_ms": 1_500}
LONG: Mapping[str, Any] = {"linger_ms": 0}


async def failing(producer: Producer, value: bytes = b"late", **options: Any) -> DeliveryTimeout:
    with pytest.raises(DeliveryTimeout) as raised:
        await producer.send(TOPIC, value, **options)
    return raised.value


async def ended(*sent: asyncio.Future[Any]) -> None:
    await asyncio.gather(*sent, return_exceptions=True)


def is_end_logged(error: DeliveryTimeout, reason: TimeoutReason, text: str) -> None:
    assert error.reason is reason
    assert text in str(error)


@pytest.mark.parametrize("own", [False, True], ids=["delivery_timeout_ms", "timeout_s"])
@scenario
async def test_reason_is_throttled_during_a_throttle(own: bool) -> None:
    async with producing(**SHORT) as (producer, opened):
        opened.on("produce").throttle(5_000)
        await producer.send(TOPIC, b"first")
        error = await failing(producer, timeout_s=0.6 if own else None)
        is_end_logged(
            error, TimeoutReason.THROTTLED, "never sent: node 1 is throttling this client for another "
        )
        assert str(error).startswith(
            f"orders-0: delivery timed out after {'0.6 s (timeout_s)' if own else '1.5 s'}"
        )
        assert not error.possibly_persisted
        await producer.close(0)


@scenario
async def test_throttled_while_the_in_flight_limit_is_reached() -> None:
    async with producing(**LONG, max_in_flight_requests_per_connection=2) as (producer, opened):
        opened.on("produce").throttle(30_000)
        opened.on("produce", times=2).delay(20)
        first = asyncio.ensure_future(producer.send(TOPIC, b"1"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(producer.send(TOPIC, b"2"))
        await asyncio.sleep(25)
        error = await failing(producer, timeout_s=1)
        assert error.reason is TimeoutReason.THROTTLED
        await producer.close(0)
        await ended(first, second)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("limit", [1, 3])
@scenario
async def test_timeout_names_the_in_flight_limit(limit: int, idempotent: bool) -> None:
    options: dict[str, Any] = {
        "max_in_flight_requests_per_connection": limit,
        "enable_idempotence": idempotent,
    }
    async with producing(**SHORT, **options) as (producer, opened):
        await producer.send(TOPIC, b"warm")
        rule = opened.on("produce", times=None).delay(1.2)
        first = []
        for _ in range(limit):
            first.append(asyncio.ensure_future(producer.send(TOPIC, b"first")))
            await asyncio.sleep(0.01)
        error = await failing(producer, timeout_s=0.6)
        assert error.reason is TimeoutReason.IN_FLIGHT_LIMIT
        assert not error.possibly_persisted
        rule.remove()
        await ended(*first)


@scenario
async def test_timeout_names_the_in_flight_limit_of_another_partition() -> None:
    async with producing(partitions=2, **LONG, max_in_flight_requests_per_connection=1) as (
        producer,
        opened,
    ):
        opened.on("produce").delay(3)
        first = asyncio.ensure_future(producer.send(TOPIC, b"first", partition=0))
        await asyncio.sleep(0.1)
        error = await failing(producer, partition=1, timeout_s=1)
        text = (
            "never sent: 1 request is in flight to node 1, the limit of max_in_flight_requests_per_connection"
        )
        is_end_logged(error, TimeoutReason.IN_FLIGHT_LIMIT, text)
        await first


@scenario
async def test_timeout_names_a_missing_leader() -> None:
    async with producing(brokers=2, partitions=2, **SHORT) as (producer, opened):
        await opened.stop_broker(2)
        await asyncio.sleep(1)
        opened.on("produce", times=None).throttle(10_000)
        await producer.send(TOPIC, b"v", partition=0)
        error = await failing(producer, partition=1)
        is_end_logged(error, TimeoutReason.NO_LEADER, "never sent: the partition has no leader")
        await producer.close(0)


@scenario
async def test_reason_is_connecting_without_a_connection() -> None:
    async with producing(**SHORT) as (producer, opened):
        await opened.stop_broker(1)
        error = await failing(producer)
        is_end_logged(error, TimeoutReason.CONNECTING, "never sent: node 1 is not connected: ")
        assert error.__cause__ is not None


@scenario
async def test_reason_is_connecting_after_an_attempt() -> None:
    async with producing(**SHORT) as (producer, opened):
        opened.on("produce").drop()
        sent = asyncio.ensure_future(producer.send(TOPIC, b"v"))
        await asyncio.sleep(0.1)
        await opened.stop_broker(1)
        with pytest.raises(DeliveryTimeout) as raised:
            await sent
        assert raised.value.reason is TimeoutReason.CONNECTING
        assert raised.value.possibly_persisted
        assert "sent once, not acknowledged: node 1 is not connected: " in str(raised.value)


@scenario
async def test_reason_is_producer_id_without_a_producer_id() -> None:
    async with producing(acquainted=False, **SHORT) as (producer, opened):
        opened.on("init_producer_id", times=None).answer(CoordinatorNotAvailable)
        error = await failing(producer)
        text = "never sent: no broker has assigned a producer id: the cluster gave no producer id"
        is_end_logged(error, TimeoutReason.PRODUCER_ID, text)


@scenario
async def test_timeout_names_a_missing_producer_id() -> None:
    async with producing(acquainted=False, **SHORT) as (producer, opened):
        await producer.partitions_for(TOPIC)
        await opened.stop_broker(1)
        await asyncio.sleep(0.1)
        assert (await failing(producer)).reason is TimeoutReason.CONNECTING


@scenario
async def test_reason_is_authentication_after_a_refused_login() -> None:
    async with secured() as opened, producer_on(opened, **SHORT) as producer:
        await producer.send(TOPIC, b"v")
        opened.on("sasl_authenticate", times=None).answer(SaslAuthenticationFailed)
        opened.disconnect(1)
        error = await failing(producer, timeout_s=1.5)
        is_end_logged(error, TimeoutReason.AUTHENTICATION, "never sent: node 1 refused the login: ")
        assert isinstance(error.__cause__, SaslAuthenticationFailed)


@scenario
async def test_reason_is_transaction_for_a_partition_not_added() -> None:
    async with (
        cluster(transaction_version=1) as opened,
        Producer(opened.bootstrap_servers, transactional_id="t", **SHORT) as producer,
    ):
        opened.on("add_partitions_to_txn", times=None).answer(CoordinatorNotAvailable)
        await producer.begin_transaction()
        error = await failing(producer, timeout_s=1)
        is_end_logged(
            error, TimeoutReason.TRANSACTION, "never sent: the transaction does not take the partition yet"
        )
        await producer.close(0)


@scenario
async def test_reason_is_backing_off_during_a_backoff() -> None:
    options = {**SHORT, "retry_backoff_ms": 1_000, "retry_backoff_max_ms": 1_000}
    async with producing(**options) as (producer, opened):
        opened.on("produce", times=None).answer(NotEnoughReplicas)
        error = await failing(producer)
        assert error.reason is TimeoutReason.BACKING_OFF
        assert "not acknowledged: the next attempt was due in " in str(error)
        assert "; last error: NotEnoughReplicas: " in str(error)


@scenario
async def test_timeout_names_an_unanswered_request() -> None:
    async with producing(**SHORT) as (producer, opened):
        opened.on("produce", times=None).delay(60)
        error = await failing(producer, timeout_s=1)
        is_end_logged(error, TimeoutReason.NO_ANSWER, "sent once, not acknowledged: node 1 has not answered")
        assert error.possibly_persisted
        await producer.close(0)


@pytest.mark.parametrize("own", [False, True], ids=["delivery_timeout_ms", "timeout_s"])
async def test_reason_is_loop_blocked_when_the_loop_did_not_run(own: bool) -> None:
    async with (
        Cluster(topics={TOPIC: 1}) as opened,
        Producer(
            opened.bootstrap_servers, linger_ms=0, request_timeout_ms=200, delivery_timeout_ms=300
        ) as producer,
    ):
        await producer.send(TOPIC, b"warm")
        opened.on("produce", times=None).delay(30)
        sent = asyncio.ensure_future(producer.send(TOPIC, b"v", timeout_s=0.2 if own else None))
        await asyncio.sleep(0.01)
        time.sleep(1.2)  # noqa: ASYNC251 - the event loop is to be blocked
        with pytest.raises(DeliveryTimeout) as raised:
            await sent
        assert raised.value.reason is TimeoutReason.LOOP_BLOCKED
        assert "the event loop did not run for " in str(raised.value)
        await producer.close(0)


@scenario
async def test_reasons_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aioproducer")
    async with producing(**SHORT) as (producer, opened):
        await opened.stop_broker(1)
        for value in (b"1", b"2"):
            await failing(producer, value)
        metrics = producer.metrics()["producer"]
        counted = {reason: metrics[f"record_timeout_{reason}_total"] for reason in TimeoutReason}
        assert counted == {**dict.fromkeys(TimeoutReason, 0), TimeoutReason.CONNECTING: 2}
        _ = producer.send_nowait(TOPIC, b"3")
        await asyncio.sleep(0)
        await producer.close(1.2)
    lines = caplog.messages
    assert "node.waiting node_id=1 reason=connecting" in lines
    [waiting] = [each for each in lines if each.startswith("close.waiting")]
    assert ' oldest=orders-0 last_error=None reason=connecting detail="node 1 is not connected: ' in waiting


@scenario
async def test_bulk_calls_have_reasons() -> None:
    async with producing(partitions=2, **SHORT) as (producer, opened):
        await opened.stop_broker(1)
        with pytest.raises(SendManyError) as raised:
            await producer.send_many(TOPIC, [b"v"] * 1_000, partitions=[0, 1] * 500, timeout_s=1)
        failures = raised.value.result.failures
        assert len(failures) == 1_000
        assert {each.reason for each in failures.values() if isinstance(each, DeliveryTimeout)} == {
            TimeoutReason.CONNECTING
        }


@scenario
async def test_reason_survives_pickling_and_copying() -> None:
    async with producing(**SHORT) as (producer, opened):
        began_at = now()
        await opened.stop_broker(1)
        error = await failing(producer)
        assert now() - began_at < 2
        error.__cause__ = None
        for each in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert each.reason is TimeoutReason.CONNECTING
            assert (str(each), each.possibly_persisted) == (str(error), False)
