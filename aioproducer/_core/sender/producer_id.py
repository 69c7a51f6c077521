"""Requests for a producer id (InitProducerId, KIP-98)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Set as AbstractSet
from functools import partial
from typing import Final

from aioproducer._core.backoff import Backoff
from aioproducer._core.idempotence import IdentityKeeper
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.metadata.metadata_source import ANSWER_TIMEOUT_S, CONNECT_STAGGER_S
from aioproducer._core.metadata.refresh_schedule import SHORTEST_PAUSE_S
from aioproducer._core.net.connection import Connection
from aioproducer._core.protocol.produce import InitProducerIdRequest, InitProducerIdResponse
from aioproducer._core.steps import Log
from aioproducer.errors import BrokerError, ProducerError, broker_error

log: Final = Log(__name__)

_NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1  # the JVM client's value without a transactional id

TOLERATED_FAILURES: Final = 5
"""Number of consecutive retriable failures before a warning is logged."""


class ProducerIdRequester:
    """Requests a producer id from any broker, and from another broker if the first broker is silent."""

    def __init__(
        self,
        identities: IdentityKeeper,
        backoff: Backoff,
        *,
        on_identity: Callable[[], None],
        on_refused: Callable[[ProducerError], None],
        wake: Callable[[], None],
        limits: LogLimits,
    ) -> None:
        self._identities = identities
        self._backoff = backoff
        self._on_identity = on_identity
        self._on_refused = on_refused
        self._wake = wake
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._failures = 0
        self.last_error: ProducerError | None = None
        """Failure of the last request; None once an id is assigned."""
        self.asked: set[int] = set()
        """Nodes without a response to the request."""
        self.tolerated_until: float = 0.0
        """Time of the next request (loop clock), after the wait for a response or after the pause that follows a failure."""
        self.dial_next_at: float = 0.0
        """Time of the next connection attempt (loop clock). Before this time the last attempt may still succeed."""
        self._dialled: set[int] = set()

    def ask(self, connection: Connection) -> None:
        """Send the request on *connection*, to a node outside `asked`."""
        node_id = connection.node_id
        self.asked.add(node_id)
        self.tolerated_until = self._loop.time() + ANSWER_TIMEOUT_S
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS
        )
        try:
            connection.call(request, partial(self._answered, node_id))
        except ProducerError as error:
            self._answered(node_id, error)

    def connected(self) -> None:
        """Shorten the pause after a lost connection, because a node is connected."""
        if not isinstance(self.last_error, BrokerError) and not self.asked:
            self.tolerated_until = min(self.tolerated_until, self._loop.time() + self._backoff.delay_s(0))

    def next_to_dial(self, nodes: AbstractSet[int]) -> int:
        """Return a random node; a round returns each of *nodes* once, because a connected node may stay silent."""
        if not nodes - self._dialled:
            self._dialled.clear()
        node_id = random.choice(tuple(nodes - self._dialled))
        self._dialled.add(node_id)
        self.dial_next_at = self._loop.time() + CONNECT_STAGGER_S
        return node_id

    def _answered(self, node_id: int, answer: InitProducerIdResponse | ProducerError) -> None:
        self.asked.discard(node_id)
        if self._identities.current is not None:  # another broker was faster
            return
        if isinstance(answer, ProducerError):
            self._failed(answer)
        elif answer.error_code:
            self._failed(broker_error(answer.error_code)("the cluster gave no producer id"))
        else:
            self._failures, self.last_error = 0, None
            self.tolerated_until = 0.0
            self._identities.assign(answer.producer_id, answer.producer_epoch)
            identity = answer.producer_id, answer.producer_epoch
            if not self._limits.over(
                "producer_id.failed", "", "producer_id.assigned id=%d epoch=%d", *identity
            ):
                log.debug("producer_id.assigned id=%d epoch=%d", *identity)
            self._on_identity()
        self._wake()

    def _failed(self, error: ProducerError) -> None:
        self.last_error = error
        delay_s = max(SHORTEST_PAUSE_S, self._backoff.delay_s(self._failures))
        self.tolerated_until = self._loop.time() + delay_s
        self._failures += 1
        # A cluster that has just started assigns no producer id for a moment.
        level = logging.INFO if error.retriable and self._failures <= TOLERATED_FAILURES else logging.WARNING
        self._limits.log(
            log,
            level,
            "",
            "producer_id.failed attempt=%d retry_in_s=%.3f error=%s: %s",
            self._failures,
            delay_s,
            type(error).__name__,
            error,
        )
        if not error.retriable:
            # A missing permission may be granted later: waiting batches fail, and later batches request the id again.
            self._on_refused(error)
