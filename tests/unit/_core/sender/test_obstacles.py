from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.schedule import TICK_S
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer._core.net.pool import RefusedLogins
from aioproducer._core.sender.obstacles import LATE_S
from aioproducer.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    DeliveryTimeout,
    NotEnoughReplicas,
    ProducerError,
    TimeoutReason,
)
from aioproducer.testing import in_virtual_time
from tests.unit._core.batching.schedule_rig import Admitting
from tests.unit._core.sender.loop_rig import Rig as LoopRig
from tests.unit.floor_rig import NODE, TOPIC, lose, lost

REFUSED = AuthenticationFailed("the broker refused the login")


class Rig(LoopRig):
    """The sender does not run: batches stay where the test has put them."""

    def ready(self) -> Batch:
        batch = self.fill()
        self.accumulator.schedule.collect(self.loop.time(), hurry=True)
        return batch

    def reason(self, batch: Batch) -> TimeoutReason:
        return self.sender.obstacles.of(batch).reason


@in_virtual_time
async def test_failure_has_reason_time_effort_and_cause() -> None:
    rig = Rig(connected=())
    rig.pool.errors[NODE] = lost()
    batch = rig.ready()
    await asyncio.sleep(120)
    failure = rig.sender.obstacles.failure(batch)
    assert failure.kind is DeliveryTimeout
    assert failure.reason is TimeoutReason.CONNECTING
    assert failure.message == (
        "orders-0: delivery timed out after 120.0 s, never sent: node 1 is not connected: b1:9092 (node 1): lost"
    )
    assert failure.cause is rig.pool.errors[NODE]
    assert not failure.possibly_persisted
    error = failure.error()
    assert isinstance(error, DeliveryTimeout)
    assert error.reason is TimeoutReason.CONNECTING


@in_virtual_time
async def test_failure_has_the_last_error() -> None:
    rig = Rig()
    batch, _ = rig.sent()
    lose(batch)
    rig.completion.reenqueue(batch, rig.loop.time() + 2)
    failure = rig.sender.obstacles.failure(batch, 2.5, rig.loop.time())
    assert failure.cause is batch.last_error
    assert failure.message == (
        "orders-0: delivery timed out after 2.5 s (timeout_s), sent once, not acknowledged: the next attempt was due in"
        " 2.0 s; last error: ConnectionFailed: b1:9092 (node 1): lost"
    )


@in_virtual_time
async def test_throttle_is_the_reason_until_its_last_moment() -> None:
    rig = Rig()
    batch = rig.ready()
    rig.connection.throttled_until = 5.0
    await asyncio.sleep(5)
    assert rig.reason(batch) is TimeoutReason.THROTTLED
    await asyncio.sleep(0.1)
    assert rig.reason(batch) is TimeoutReason.LOOP_BLOCKED


@in_virtual_time
async def test_throttle_is_the_reason_for_an_unanswered_request() -> None:
    rig = Rig()
    batch, _ = rig.sent()
    assert rig.reason(batch) is TimeoutReason.NO_ANSWER
    rig.connection.throttled_until = 5.0
    assert rig.reason(batch) is TimeoutReason.THROTTLED


@in_virtual_time
async def test_login_holds_requests_back() -> None:
    rig = Rig()
    rig.connection.is_paused = True
    assert rig.reason(rig.ready()) is TimeoutReason.AUTHENTICATION
    rig = Rig()
    sent, _ = rig.sent()
    rig.connection.is_paused = True
    assert rig.reason(sent) is TimeoutReason.AUTHENTICATION


@in_virtual_time
async def test_refused_login_is_the_reason_for_a_missing_connection() -> None:
    rig = Rig(connected=())
    batch = rig.ready()
    rig.pool.refused[NODE] = RefusedLogins(REFUSED, 0.0)
    obstacle = rig.sender.obstacles.of(batch)
    assert obstacle == (TimeoutReason.AUTHENTICATION, f"node 1 refused the login: {REFUSED}", REFUSED)


@in_virtual_time
async def test_missing_leader_is_the_reason_in_every_waiting_state() -> None:
    rig = Rig()
    waiting = rig.fill()
    rig.accumulator.update_topic(TOPIC, [NO_LEADER])
    assert rig.reason(waiting) is TimeoutReason.NO_LEADER
    del rig.accumulator.topics[TOPIC]
    assert rig.reason(waiting) is TimeoutReason.NO_LEADER


@pytest.mark.parametrize(
    ("error", "connected", "reason"),
    [
        (lost(), True, TimeoutReason.BACKING_OFF),
        (lost(), False, TimeoutReason.CONNECTING),
        (NotEnoughReplicas(), False, TimeoutReason.BACKING_OFF),
    ],
)
@in_virtual_time
async def test_backoff_counts_unless_the_leader_is_away(
    error: ProducerError, connected: bool, reason: TimeoutReason
) -> None:
    rig = Rig()
    batch, _ = rig.sent()
    if isinstance(error, ConnectionFailed):
        batch.connection_lost(error, reached_socket=True)
    else:
        assert isinstance(error, NotEnoughReplicas)
        batch.refused(error, was_next=True)
    rig.completion.reenqueue(batch, rig.loop.time() + 1)
    if not connected:
        rig.connection.close()
    assert rig.reason(batch) is reason


@in_virtual_time
async def test_missing_producer_id_counts_while_a_broker_is_connected() -> None:
    rig = Rig(identified=False)
    rig.updater.knows(TOPIC, NODE)
    batch = rig.ready()
    assert rig.reason(batch) is TimeoutReason.PRODUCER_ID
    rig.connection.close()
    assert rig.reason(batch) is TimeoutReason.CONNECTING
    rig.pool.refused[NODE] = RefusedLogins(REFUSED, 0.0)
    assert rig.reason(batch) is TimeoutReason.AUTHENTICATION


@in_virtual_time
async def test_batch_in_parts_has_the_reason_of_a_part() -> None:
    rig = Rig()
    batch, _ = rig.sent(b"a", b"b")
    batch.persistence.answered()
    rig.completion.split(batch)
    assert batch.state is BatchState.SPLIT
    rig.connection.throttled_until = 5.0
    assert rig.reason(batch) is TimeoutReason.THROTTLED


@in_virtual_time
async def test_lingering_batch_is_backing_off() -> None:
    rig = Rig(batching={"linger_s": 60.0})
    assert rig.append() is not None
    [batch] = rig.accumulator.unresolved
    assert rig.sender.obstacles.of(batch) == (
        TimeoutReason.BACKING_OFF,
        "the batch was waiting for more records (linger_ms)",
        None,
    )


@pytest.mark.parametrize(
    ("late_s", "reason"),
    [
        (LATE_S - 0.01, TimeoutReason.NO_LEADER),
        (1.0, TimeoutReason.NO_LEADER),
        (3.0, TimeoutReason.LOOP_BLOCKED),
    ],
)
@in_virtual_time
async def test_blocked_loop_is_the_reason_if_it_lasted_longest(late_s: float, reason: TimeoutReason) -> None:
    rig = Rig()
    batch = rig.ready()
    rig.accumulator.update_topic(TOPIC, [NO_LEADER])
    await asyncio.sleep(2.1 + late_s)
    assert rig.sender.obstacles.failure(batch, 2.0, 2.0).reason is reason


@pytest.mark.parametrize(
    ("late_s", "reason"), [(0.2, TimeoutReason.NO_ANSWER), (0.5, TimeoutReason.LOOP_BLOCKED)]
)
@in_virtual_time
async def test_blocked_loop_may_have_hidden_an_answer(late_s: float, reason: TimeoutReason) -> None:
    rig = Rig()
    batch, _ = rig.sent()
    await asyncio.sleep(2.1 + late_s)
    assert rig.sender.obstacles.failure(batch, 2.0, 2.0).reason is reason


@pytest.mark.parametrize(
    ("late_s", "text"), [(0.0, "the event loop did not run"), (3.0, "the event loop did not run for 3.0 s")]
)
@in_virtual_time
async def test_blocked_loop_is_the_reason_of_a_sendable_batch(late_s: float, text: str) -> None:
    rig = Rig()
    batch = rig.ready()
    await asyncio.sleep(2.0 + TICK_S + late_s)
    failure = rig.sender.obstacles.failure(batch, 2.0, 2.0)
    assert failure.reason is TimeoutReason.LOOP_BLOCKED
    assert failure.message.endswith(f"never sent: {text}")


@in_virtual_time
async def test_unwritten_batch_waits_for_earlier_requests() -> None:
    rig = Rig()
    _ = rig.fill()
    [batch] = rig.drain()
    assert rig.sender.obstacles.of(batch) == (
        TimeoutReason.IN_FLIGHT_LIMIT,
        "earlier requests to node 1 are still being written",
        None,
    )
    rig.connection.throttled_until = 5.0
    assert rig.reason(batch) is TimeoutReason.THROTTLED


@in_virtual_time
async def test_transaction_is_the_reason_while_a_broker_is_connected() -> None:
    rig = Rig(batching={"identities": Admitting()})
    rig.updater.knows(TOPIC, NODE)
    batch = rig.ready()
    assert rig.sender.obstacles.of(batch) == (
        TimeoutReason.TRANSACTION,
        "the transaction does not take the partition yet",
        None,
    )
    rig.connection.close()
    assert rig.reason(batch) is TimeoutReason.CONNECTING


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 earlier batch of the partition awaits the response"),
        (2, "2 earlier batches of the partition await the response"),
    ],
)
@in_virtual_time
async def test_batches_in_flight_hold_the_next_batch_back(count: int, text: str) -> None:
    rig = Rig(batching={"max_in_flight": count})
    for _ in range(count):
        _ = rig.sent()
    batch = rig.ready()
    assert rig.sender.obstacles.of(batch) == (TimeoutReason.IN_FLIGHT_LIMIT, text, None)
    rig.connection.throttled_until = 5.0
    assert rig.reason(batch) is TimeoutReason.THROTTLED
    rig.connection.is_paused = True
    assert rig.reason(batch) is TimeoutReason.AUTHENTICATION
