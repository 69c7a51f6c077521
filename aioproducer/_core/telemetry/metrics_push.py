"""The push of client metrics (KIP-714), of a producer whose cluster takes them: for all others it is one look-up.

Brokers offer these APIs only if somebody on their side receives the metrics. So nothing is imported, asked or kept
before one of them does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aioproducer._core.net.pool import Pool
from aioproducer._core.steps import Log

if TYPE_CHECKING:
    from aioproducer._core.telemetry.telemetry_session import TelemetrySession

log: Final = Log(__name__)

GET_TELEMETRY_SUBSCRIPTIONS: Final = 71
"""The number of the API: its message is imported by those who send it."""
GOODBYE_S: Final = 0.5
"""How long a closing producer waits for the answer to its last push."""


class MetricsPush:
    """Begins a session once a broker offers it, and ends it."""

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
        """*brokers* are the ids of those that are known; *report* returns all metrics, those of *topics* among them."""
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
        """The id that the cluster gave this producer, as Kafka's tools spell it; None without one."""
        session = self._session
        if session is None or not any(session.client_instance_id):
            return None
        from base64 import urlsafe_b64encode  # noqa: PLC0415 - nobody but who asks needs it

        return urlsafe_b64encode(session.client_instance_id).rstrip(b"=").decode()

    def connected(self, node_id: int) -> None:
        """Begin, if the broker is the first that takes metrics."""
        if self._session is not None or not self._enabled:
            return
        connection = self._pool.get(node_id)
        if connection is None or GET_TELEMETRY_SUBSCRIPTIONS not in connection.versions.offered:
            return
        from aioproducer._core.telemetry.telemetry_session import Surroundings, TelemetrySession  # noqa: PLC0415

        resource = {} if self._transactional_id is None else {"transactional_id": self._transactional_id}
        session = self._session = TelemetrySession(
            Surroundings(self._pool, self._brokers, self._report, self._topics, resource)
        )
        self._running = asyncio.get_running_loop().create_task(
            _contained(session.run()), name="aioproducer: telemetry"
        )

    async def finish(self) -> None:
        """Push what is left, as the last; that takes a moment at most."""
        await self.stop()
        if self._session is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await _contained(self._session.say_goodbye())

    async def stop(self) -> None:
        """Push no more."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])


async def _contained(work: Coroutine[Any, Any, None]) -> None:
    """Keep bugs of ours away from the records, which do not depend on this."""
    try:
        await work
    except Exception:
        log.exception("telemetry.bug")
