"""Getting a producer id from the cluster (InitProducerId, KIP-98)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from aioproducer.backoff import Backoff
from aioproducer.errors import ProducerError, UnsupportedVersion, broker_error
from aioproducer.idempotence.identity import IdentityKeeper
from aioproducer.net.connection import Connection
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger(__name__)

_NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1  # what the JVM client sends without a transactional id


class ProducerIdRequester:
    """Asks any broker for a producer id; one question at a time, with a backoff between refusals."""

    def __init__(
        self,
        identities: IdentityKeeper,
        backoff: Backoff,
        *,
        on_identity: Callable[[], None],
        on_refused: Callable[[ProducerError], None],
    ) -> None:
        self._identities = identities
        self._backoff = backoff
        self._on_identity = on_identity
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._asked = False
        self._failures = 0
        self.retry_at = 0.0
        """Not to be asked again before this, in loop time."""

    @property
    def asking(self) -> bool:
        """Whether an answer is on its way."""
        return self._asked

    def ask(self, connection: Connection) -> None:
        """Ask over *connection*; `on_identity` or `on_refused` is called some time after."""
        self._asked = True
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS
        )
        try:
            connection.call(request, self._answered)
        except ProducerError as error:
            self._failed(error)

    def _answered(self, answer: InitProducerIdResponse | ProducerError) -> None:
        if isinstance(answer, ProducerError):
            self._failed(answer)
        elif answer.error_code:
            self._failed(broker_error(answer.error_code)("the cluster gave no producer id"))
        else:
            self._asked = False
            self._failures = 0
            self._identities.assign(answer.producer_id, answer.producer_epoch)
            log.debug("producer_id.assigned id=%d epoch=%d", answer.producer_id, answer.producer_epoch)
            self._on_identity()

    def _failed(self, error: ProducerError) -> None:
        self._asked = False
        self.retry_at = self._loop.time() + self._backoff.delay_s(self._failures)
        self._failures += 1
        log.warning(
            "producer_id.failed attempt=%d retry_in_s=%.3f error=%s: %s",
            self._failures,
            self.retry_at - self._loop.time(),
            type(error).__name__,
            error,
        )
        # Lost authorization may come back: whoever sends now fails, whoever sends later asks again.
        if isinstance(error, UnsupportedVersion) or not error.retriable:
            self._on_refused(error)
        else:
            self._on_identity()
