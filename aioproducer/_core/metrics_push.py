"""Start and end of the push of client metrics (KIP-714).

Brokers offer the APIs of KIP-714 only with a plugin that receives metrics. If no broker offers the APIs, the push costs
one look-up per connection. The session is imported once a broker offers the APIs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aioproducer._core.net.pool import Pool
from aioproducer._core.steps import Log

if TYPE_CHECKING:
    from aioproducer._core.telemetry_session import TelemetrySession

log: Final = Log(__name__)

GET_TELEMETRY_SUBSCRIPTIONS: Final = 71
"""API key of GetTelemetrySubscriptions; only the session imports the message."""
LAST_PUSH_S: Final = 0.5
"""Maximum wait of a closing producer for the response to its last push, in seconds."""


class MetricsPush:
    """Lifecycle of the telemetry session: starts once a broker offers the APIs, ends with the producer."""

    def __init__(
        self,
        pool: Pool,
        *,
        brokers: Callable[[], Iterable[int]],
        report: Callable[[], Mapping[str, Mapping[Any, Any]]],
        topics: Mapping[str, object],
        transactional_id: str | None,
        enabled: bool,
    ) -> None:
        """*brokers* returns the ids of the known brokers; *report* returns all metrics, also the metrics of *topics*."""
        self._pool = pool
        self._brokers = brokers
        self._report = report
        self._topics = topics
        self._transactional_id = transactional_id
        self._enabled = enabled
        self._session: TelemetrySession | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def client_instance_id(self) -> str | None:
        """Id that the cluster assigns to this producer, as base64 like in Kafka's tools; None before the assignment."""
        session = self._session
        if session is None or not any(session.client_instance_id):
            return None
        from base64 import urlsafe_b64encode  # noqa: PLC0415 - needed by callers of this property only

        return urlsafe_b64encode(session.client_instance_id).rstrip(b"=").decode()

    def connected(self, node_id: int) -> None:
        """Start the session if *node_id* is the first broker that offers the APIs."""
        if self._session is not None or not self._enabled:
            return
        connection = self._pool.get(node_id)
        if connection is None or GET_TELEMETRY_SUBSCRIPTIONS not in connection.versions.offered:
            return
        from aioproducer._core.telemetry_session import TelemetryContext, TelemetrySession  # noqa: PLC0415

        resource = {} if self._transactional_id is None else {"transactional_id": self._transactional_id}
        session = self._session = TelemetrySession(
            TelemetryContext(self._pool, self._brokers, self._report, self._topics, resource)
        )
        self._running = asyncio.get_running_loop().create_task(
            _contained(session.run()), name="aioproducer: telemetry"
        )

    async def finish(self) -> None:
        """Push the remaining metrics, for at most `LAST_PUSH_S`."""
        await self.stop()
        if self._session is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_PUSH_S):
                    await _contained(self._session.push_last())

    async def stop(self) -> None:
        """Cancel the session."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])


async def _contained(work: Coroutine[Any, Any, None]) -> None:
    """Run *work* and log its bugs, so that records do not depend on telemetry."""
    try:
        await work
    except Exception:
        log.exception("telemetry.bug")
