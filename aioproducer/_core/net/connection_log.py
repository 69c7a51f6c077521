"""Log events of a connection: surplus bytes, throttles and internal errors."""

from __future__ import annotations

import logging
from typing import Final

from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs
from aioproducer._core.metrics import NodeCounters
from aioproducer._core.net.connection_protocol import ConnectionProtocol, caused
from aioproducer._core.net.in_flight import Call
from aioproducer._core.steps import Log
from aioproducer.errors import ConnectionFailed

log: Final = Log(__name__)

LONG_THROTTLE_S: Final = 1.0
"""Shortest throttle that is logged, in seconds."""


class ConnectionLog:
    """Logger of a connection, with the state of its logged events."""

    __slots__ = ("_connection", "_surplus_is_logged", "throttled_until")

    def __init__(self, connection: ConnectionProtocol) -> None:
        self._connection = connection
        self._surplus_is_logged = False
        self.throttled_until: float = 0.0
        """End of the logged throttle (loop clock); 0 after a response without a throttle."""

    def surplus(self, call: Call, size: int, counters: NodeCounters) -> None:
        """Count a response with *size* surplus bytes, and log the first response with surplus bytes per node.

        A connection logs surplus bytes at most once, because a bootstrap connection may get the counters of a node.
        """
        counters.surplus_answers += 1
        if counters.surplus_answers > 1 or self._surplus_is_logged:
            return
        self._surplus_is_logged = True
        log.warning(
            "connection.surplus node_id=%d address=%s api=%s version=%d bytes=%d",
            *(self._connection.node_id, self._connection.address, call.api, call.version, size),
        )

    def throttle(self, now: float, limits: LogLimits) -> None:
        """Log the start of a throttle, or the first response without a throttle after a throttle."""
        until, address = self._connection.throttled_until, self._connection.address
        subject = Pairs(node_id=self._connection.node_id)
        if until > self.throttled_until and until - now >= LONG_THROTTLE_S:
            self.throttled_until = until
            limits.log(
                log,
                logging.WARNING,
                subject,
                "connection.throttled %s address=%s throttle_s=%.3f",
                *(subject, address, until - now),
            )
        elif until <= now:
            self.throttled_until = 0.0
            _ = limits.over(
                "connection.throttled", subject, "connection.unthrottled %s address=%s", subject, address
            )

    def bug(self, error: Exception, limits: LogLimits) -> ConnectionFailed:
        """Log an internal error, and return the error that closes the connection."""
        subject = Pairs(connection=self._connection)
        limits.log(log, logging.ERROR, subject, "connection.bug %s", subject, error=error)
        return self._closed_by(error)

    def handler_failed(self, error: Exception, limits: LogLimits) -> ConnectionFailed:
        """Log the error of a response's callable, and return the error that closes the connection."""
        subject = Pairs(connection=self._connection)
        limits.log(log, logging.ERROR, subject, "connection.handler_failed %s", subject, error=error)
        return self._closed_by(error)

    def _closed_by(self, error: Exception) -> ConnectionFailed:
        closed = ConnectionFailed(f"{self._connection}: closed after an internal error: {error!r}")
        return caused(closed, error)
