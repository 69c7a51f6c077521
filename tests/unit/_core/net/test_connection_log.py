from __future__ import annotations

import logging

import pytest

from aioproducer._core.address import Address
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.metrics import NodeCounters
from aioproducer._core.net.connection_log import ConnectionLog
from aioproducer._core.net.connection_protocol import ConnectionProtocol
from aioproducer._core.net.in_flight import Call
from aioproducer._core.protocol.produce import InitProducerIdResponse
from aioproducer._core.protocol.schema import decode_response
from aioproducer.errors import ConnectionFailed
from tests.unit._core.net.connection_protocol_rig import NOW
from tests.unit._core.net.scripted import settings

ADDRESS = Address("broker", 9092)
CALL = Call(0, InitProducerIdResponse, 4, decode_response, lambda _: None, NOW, 0)


def protocol() -> ConnectionProtocol:
    return ConnectionProtocol(ADDRESS, settings(), 3, NOW)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{each.levelname} {each.getMessage()}" for each in caplog.records]


def test_surplus_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    counters, log = NodeCounters(NOW), ConnectionLog(protocol())
    for size in (2, 5):
        log.surplus(CALL, size, counters)
    log.surplus(CALL, 7, NodeCounters(NOW))
    assert counters.surplus_answers == 2
    assert lines(caplog) == [
        "WARNING connection.surplus node_id=3 address=broker:9092 api=InitProducerId version=4 bytes=2"
    ]


def test_surplus_is_not_logged_when_the_node_had_one(caplog: pytest.LogCaptureFixture) -> None:
    counters = NodeCounters(NOW)
    counters.surplus_answers = 1
    ConnectionLog(protocol()).surplus(CALL, 2, counters)
    assert counters.surplus_answers == 2
    assert lines(caplog) == []


async def test_throttle_is_logged_at_begin_and_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    connection, limits = protocol(), LogLimits()
    log = ConnectionLog(connection)
    connection.throttled_until = NOW + 2
    log.throttle(NOW, limits)
    assert log.throttled_until == NOW + 2
    log.throttle(NOW + 1, limits)
    assert lines(caplog) == ["WARNING connection.throttled node_id=3 address=broker:9092 throttle_s=2.000"]
    log.throttle(NOW + 2, limits)
    assert log.throttled_until == 0
    assert lines(caplog)[1].startswith("INFO connection.unthrottled node_id=3 address=broker:9092")
    limits.close()


async def test_short_throttle_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    connection, limits = protocol(), LogLimits()
    connection.throttled_until = NOW + 0.999
    log = ConnectionLog(connection)
    log.throttle(NOW, limits)
    assert (log.throttled_until, lines(caplog)) == (0, [])
    limits.close()


@pytest.mark.parametrize("event", ["bug", "handler_failed"])
async def test_internal_error_is_logged_with_its_traceback(
    event: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection, limits, error = protocol(), LogLimits(), LookupError("oops")
    failed = getattr(ConnectionLog(connection), event)(error, limits)
    assert isinstance(failed, ConnectionFailed)
    assert str(failed) == f"{connection}: closed after an internal error: LookupError('oops')"
    assert failed.__cause__ is error
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == f'connection.{event} connection="{connection}"'
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    limits.close()
