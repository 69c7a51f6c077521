from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.sender.obstacles import (
    failure_at,
    failure_of_encoding,
    failure_of_login,
    failure_without_producer_id,
)
from aioproducer.errors import (
    AuthenticationFailed,
    NotLeaderOrFollower,
    ProducerError,
    TopicAuthorizationFailed,
)
from aioproducer.testing import in_virtual_time
from tests.fakes import FakeConnection
from tests.unit.floor_rig import FloorRig, lose


@in_virtual_time
async def test_failure_names_broker_attempts_and_time() -> None:
    await asyncio.sleep(2)
    batch, _ = FloorRig().sent()
    await asyncio.sleep(1.5)
    error = TopicAuthorizationFailed("not for you")
    failure = failure_at(batch, FakeConnection().real, error)
    assert failure.kind is TopicAuthorizationFailed
    assert failure.message == "orders-0 at b1:9092 (node 1), 1 attempt in 1.500 s: not for you"
    assert failure.cause is error


@in_virtual_time
async def test_cause_of_a_failure_is_the_last_error() -> None:
    batch, _ = FloorRig().sent()
    batch.refused(NotLeaderOrFollower("moved"), was_next=True)
    batch.retry(1.0)
    batch.drain()
    failure = failure_at(batch, FakeConnection().real, TopicAuthorizationFailed("not for you"))
    assert failure.cause is batch.last_error
    assert "2 attempts" in failure.message


@in_virtual_time
async def test_failure_reports_whether_the_batch_may_be_in_the_log() -> None:
    batch, _ = FloorRig().sent()
    error, connection = TopicAuthorizationFailed(), FakeConnection().real
    assert failure_at(batch, connection, error).possibly_persisted
    batch.persistence.answered()
    assert not failure_at(batch, connection, error).possibly_persisted
    batch.persistence.written()
    lose(batch)
    assert failure_at(batch, connection, error).possibly_persisted


@in_virtual_time
async def test_failure_without_a_producer_id_names_the_refusal() -> None:
    batch = FloorRig().fill()
    error = TopicAuthorizationFailed("no")
    failure = failure_without_producer_id(batch, error)
    assert failure.kind is TopicAuthorizationFailed
    assert failure.message == "orders-0: no producer id, which an idempotent producer needs: no"
    assert failure.cause is error
    assert failure.possibly_persisted is False


@pytest.mark.parametrize("out", [False, True])
@in_virtual_time
async def test_failure_of_a_login_names_the_refusal(out: bool) -> None:
    rig = FloorRig()
    batch = rig.sent()[0] if out else rig.fill()
    error = AuthenticationFailed("b1:9092: the password was refused")
    failure = failure_of_login(batch, error)
    assert failure.kind is AuthenticationFailed
    assert failure.message == "orders-0: b1:9092: the password was refused"
    assert failure.cause is error
    assert failure.possibly_persisted is out


@in_virtual_time
async def test_failure_of_encoding_is_not_possibly_persisted() -> None:
    batch = FloorRig().fill()
    error = RuntimeError("compressor on fire")
    failure = failure_of_encoding(batch, error)
    assert failure.kind is ProducerError
    assert "compressor on fire" in failure.message
    assert failure.cause is error
    assert not failure.possibly_persisted


@in_virtual_time
async def test_failure_of_encoding_an_uncertain_part_is_possible() -> None:
    batch, _ = FloorRig().sent()
    lose(batch)
    assert failure_of_encoding(batch, RuntimeError("compressor on fire")).possibly_persisted
