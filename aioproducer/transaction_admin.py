"""`TransactionAdmin`: ends, describes, lists and fences transactions without a producer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Self, Unpack

from aioproducer._core.intake.checks import check_timeout
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.metadata.metadata_source import bootstrap_opener
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.metrics import Metrics
from aioproducer._core.net.pool import Pool
from aioproducer._core.transactions.administration import (
    Administration,
    TransactionDescription,
    TransactionListing,
)
from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.errors import ConfigError, ProducerClosed, ProducerError, WrongLoop


class TransactionAdmin:
    """Client that ends prepared transactions, and describes, lists and fences transactional ids.

        async with TransactionAdmin("localhost:9092") as admin:
            await admin.end(PreparedTransaction.parse(text), commit=True)

    Options are those of a producer; options of connections, security and retries have an effect. One admin serves any
    number of tasks of one event loop. Every call is retried for at most `max_block_ms`; cancelling ends the retries.

    Raises: ConfigError: an option is unknown, out of range, or contradicts another option.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        try:
            config = ProducerConfig(bootstrap_servers=bootstrap_servers, **options)
        except ConfigError:
            del options  # the traceback keeps this frame, and options may be secret
            raise
        self._begin(config)

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Self:
        """Return an admin with *config*."""
        admin = cls.__new__(cls)
        admin._begin(config)  # noqa: SLF001 - of this package
        return admin

    def _begin(self, config: ProducerConfig) -> None:
        self.config = config
        self._opened: _Opened | None = None

    async def __aenter__(self) -> Self:
        """Connect to the cluster. Raises: ConnectionFailed, with a cause for each bootstrap address."""
        if self._opened is not None:
            raise ProducerClosed("this admin is already open; close it before the next `async with`")
        opened = _Opened(self.config)
        try:
            await opened.start()
        except BaseException:
            await opened.close()
            raise
        self._opened = opened
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections. Calls in progress fail."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    async def end(
        self, prepared: PreparedTransaction, *, commit: bool, timeout_s: float | None = None
    ) -> None:
        """Commit or abort *prepared*. The call may be repeated until the transactional id is used again.

        Returns once the coordinator has recorded the end; consumers that read committed records receive the records of
        the transaction some milliseconds later. A transaction without records ends as well (since Kafka 3.0).
        *timeout_s*: None is `max_block_ms`. Cancelling ends the retries; the outcome is unknown until another call.

        Raises:
            TransactionLost: a commit is certainly impossible, because the transaction timed out or was aborted.
            TransactionStateError: an abort is impossible, because the transaction is committed (`transaction.version` 2).
            TransactionOutcomeUnknown: the id was used, fenced or expired meanwhile, or the transaction was ended the
                opposite way (the broker's error is the `__cause__`); the transaction has no records, and the broker is
                older than Kafka 3.0; or the coordinator has not answered in time (call again).
            TransactionTimeout: no coordinator was reachable in time; no request was sent.
            BrokerError: the broker refuses for good, for example with TransactionalIdAuthorizationFailed.
        """
        await self._administration().end(
            _prepared(prepared), commit=commit, timeout_s=check_timeout(timeout_s)
        )

    async def end_many(
        self, prepared: Iterable[PreparedTransaction], *, commit: bool
    ) -> dict[PreparedTransaction, ProducerError | None]:
        """End many transactions concurrently; return None or the error of `end` for each transaction.

        Consumers may see the records of some transactions before those of others.
        """
        return await self._administration().end_many([_prepared(each) for each in prepared], commit=commit)

    async def describe(self, *ids: str) -> dict[str, TransactionDescription | None]:
        """Return the description of each transactional id; None for an unused or expired id.

        Raises: TransactionTimeout, TransactionalIdAuthorizationFailed.
        """
        return await self._administration().describe(ids)

    async def list(
        self,
        pattern: str | None = None,
        states: Iterable[str] = (),
        longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        r"""Return the transactional ids of all brokers, sorted by id.

        Args:
            pattern: a regular expression (RE2) for the whole id, such as `orders\..*`; needs Kafka 4.1.
            states: Kafka's names of states to include; empty: all.
            longer_than_ms: minimum age of an open transaction.

        Raises: ValueError: an unknown state. InvalidRegularExpression. UnsupportedVersion: the brokers are too old for a
            filter. TransactionTimeout: a broker did not answer in time.
        """
        wanted = (states,) if isinstance(states, str) else tuple(states)
        return await self._administration().list(pattern, wanted, longer_than_ms)

    async def fence(self, *ids: str) -> None:
        """Fence the producers of these transactional ids, and abort their open transactions, prepared or not.

        Returns after the aborts. All ids are tried, even if one id fails. The call may be repeated.

        Raises: the first error: TransactionTimeout, TransactionalIdAuthorizationFailed.
        """
        await self._administration().fence(ids)

    def _administration(self) -> Administration:
        if self._opened is None:
            raise ProducerClosed("the admin is not connected; use it in `async with`")
        if self._opened.loop is not asyncio.get_running_loop():
            raise WrongLoop("the admin was opened in another event loop; it can be used only there")
        return self._opened.administration


class _Opened:
    """Connections of an admin on one event loop."""

    def __init__(self, config: ProducerConfig) -> None:
        self.loop = asyncio.get_running_loop()
        self._connections = config.connection_settings()
        self._security = config.connection_security()
        self._metrics = Metrics(self.loop.time)
        self._limits = LogLimits()
        self._pool = Pool(
            self._connections,
            on_connected=self._connected,
            on_disconnected=self._disconnected,
            metrics=self._metrics,
            security=self._security,
            limits=self._limits,
        )
        self._updater = MetadataUpdater(
            config.metadata_settings(),
            self._pool,
            open_connection=bootstrap_opener(
                self._connections, security=self._security, metrics=self._metrics, limits=self._limits
            ),
            on_update=lambda *_: None,
            leaderless=lambda: (),
            limits=self._limits,
        )
        self.administration = Administration(
            self._pool,
            self._updater,
            config.sender_settings().retry_backoff,
            limits=self._limits,
            limit_s=config.max_block_s,
            timeout_ms=config.transaction_timeout_ms,
        )

    async def start(self) -> None:
        settings = self._connections
        await self._updater.bootstrap(
            self.loop.time() + settings.setup_timeout_s + settings.request_timeout_s
        )
        _ = self._updater.start()

    async def close(self) -> None:
        self.administration.close()
        await self._updater.close()
        if self._security is not None:
            self._security.close()
        await self._pool.close()
        self._limits.close()

    def _connected(self, node_id: int) -> None:
        self.administration.connections_changed()
        self._updater.connected(node_id)

    def _disconnected(self, node_id: int, error: ProducerError | None) -> None:
        self._updater.disconnected(node_id, error)
        self.administration.connections_changed()


def _prepared(given: object) -> PreparedTransaction:
    if not isinstance(given, PreparedTransaction):
        raise TypeError(
            f"prepared is a {type(given).__name__}; expected a PreparedTransaction, as PreparedTransaction.parse(text)"
            " returns"
        )
    return given
