"""User code calls the producer: in transactions, for many partitions at once, and in answer to its own calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import Producer, ProducerError
from aioproducer.errors import NotLeaderOrFollower, TopicAuthorizationFailed
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, scenario
from tests.scenarios.test_reentrant_calls import SITES, Call, UserCode, calling, eagerly

MANY = 400


class Breaker:
    """Purges whenever a record fails, and may send one more first."""

    def __init__(self, *, sends: bool) -> None:
        self.producer: Producer | None = None
        self.failed = self.depth = self.deepest = 0
        self._sends = sends

    def on_acknowledgement(self, metadata: object, error: object, where: Any) -> None:
        if error is None or self.producer is None:
            return
        self.failed += 1
        self.depth += 1
        self.deepest = max(self.depth, self.deepest)
        if self._sends and self.failed < 10 * MANY:
            _ = self.producer.send_nowait(TOPIC, b"again", partition=where.partition)
        self.producer.purge()
        self.depth -= 1


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize("spread", [1, MANY])
@scenario
async def test_expiring_batches_may_be_purged(
    spread: int, sends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    breaker = Breaker(sends=sends)
    async with Cluster(topics={TOPIC: MANY}, transport="memory") as cluster:
        options: dict[str, Any] = {"delivery_timeout_ms": 2_000, "request_timeout_ms": 1_000}
        async with Producer(cluster.bootstrap_servers, interceptors=[breaker], **options) as producer:
            await producer.send(TOPIC, b"known", partition=0)
            breaker.producer = producer
            await cluster.stop_broker(1)
            sent = [producer.send_nowait(TOPIC, b"v", partition=each % spread) for each in range(2 * MANY)]
            done, pending = await asyncio.wait(sent, timeout=3)
            assert not pending
            assert all(isinstance(each.exception(), ProducerError) for each in done)
            await cluster.start_broker(1)
            breaker.producer = None
            assert (await producer.send(TOPIC, b"next", partition=0)).offset >= 0
            await producer.flush()
            assert producer.state == "ready"
            assert len(producer) == 0
    assert breaker.failed >= 2 * MANY
    assert breaker.deepest <= 20
    assert "interceptor.failed" not in caplog.text


IN_TRANSACTIONS: dict[str, Call] = {
    "send_nowait": lambda _, producer: producer.send_nowait(TOPIC, b"again"),
    "purge": lambda _, producer: producer.purge(),
    "abort": lambda code, producer: code.spawn(producer.abort_transaction()),
    "abort at once": lambda code, producer: eagerly(code, producer.abort_transaction()),
    "commit": lambda code, producer: code.spawn(producer.commit_transaction()),
    "begin": lambda code, producer: code.spawn(producer.begin_transaction()),
    "flush": lambda code, producer: code.spawn(producer.flush()),
    "close(0) at once": lambda code, producer: eagerly(code, producer.close(0)),
}


@pytest.mark.parametrize("call", IN_TRANSACTIONS)
@for_each("site", SITES)
@scenario
async def test_transactions_end_when_user_code_calls(
    site: str, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    code = UserCode(site, IN_TRANSACTIONS[call])
    async with calling(code, transactional_id="t", start=False) as (producer, cluster):
        await producer.begin_transaction()
        await producer.send(TOPIC, b"known")
        await producer.commit_transaction()
        code.producer = producer
        for error in (None, NotLeaderOrFollower, TopicAuthorizationFailed, None):
            if error is not None:
                cluster.on("produce", topic=TOPIC, times=1).answer(error)
            outcomes = await transaction(producer, code)
            if outcomes:
                done, pending = await asyncio.wait(outcomes, timeout=10)
                assert not pending
                for each in done:
                    _ = each.exception()
        code.producer = None
        assert code.calls
        assert caplog.text.count("task.crashed") == caplog.text.count(".bug") == 0
        assert caplog.text.count("handler_failed") == caplog.text.count("interceptor.failed") == 0


async def transaction(producer: Producer, code: UserCode) -> list[asyncio.Future[Any]]:
    """Run one transaction; return the outcomes of its records."""
    outcomes: list[asyncio.Future[Any]] = []
    try:
        await producer.begin_transaction()
        for each in range(12):
            future = producer.send_nowait(TOPIC, b"v", partition=each)
            future.add_done_callback(code.done)
            outcomes.append(future)
        outcomes.append(asyncio.ensure_future(producer.send_many(TOPIC, [b"bulk"] * 20)))
        await asyncio.sleep(0.2)
        await producer.commit_transaction()
    except ProducerError:
        try:
            await producer.abort_transaction()
        except ProducerError:
            return outcomes
    return outcomes
