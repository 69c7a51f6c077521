"""Ending, describing, listing and fencing transactions, without a producer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
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
from aioproducer._handover import connection_security
from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.errors import ConfigError, ProducerClosed, ProducerError, WrongLoop


class TransactionAdmin:
    """Ends transactions that were prepared elsewhere; describes, lists and fences transactional ids.

        async with TransactionAdmin("localhost:9092") as admin:
            await admin.end(PreparedTransaction.parse(text), commit=True)

    It takes a producer's options; those about connections, security and retries are of use here. One serves any number
    of tasks of one event loop. Every call asks until it is answered, for at most `max_block_ms`; cancelling it ends the
    asking.

    Raises: ConfigError: as a producer.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        try:
            config = ProducerConfig(bootstrap_servers=bootstrap_servers, **options)
        except ConfigError:
            del options  # this frame goes into the traceback
            raise
        self._begin(config)

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Self:
        """Return an admin with a configuration that was made before."""
        admin = cls.__new__(cls)
        admin._begin(config)  # noqa: SLF001 - our own
        return admin

    def _begin(self, config: ProducerConfig) -> None:
        self.config = config
        self._opened: _Opened | None = None

    async def __aenter__(self) -> Self:
        """Connect. Raises: ConnectionFailed: every bootstrap address has failed; it lists each with its cause."""
        if self._opened is not None:
            raise ProducerClosed("this admin is open already; each `async with` is for one at a time")
        opened = _Opened(self.config)
        try:
            await opened.start()
        except BaseException:
            await opened.close()
            raise
        self._opened = opened
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections. What is still being asked fails."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    async def end(
        self, prepared: PreparedTransaction, *, commit: bool, timeout_s: float | None = None
    ) -> None:
        """Commit *prepared*, or abort it; to repeat it is fine, until the transactional id is used again.

        It returns when that is written down for good; readers of committed records see them some milliseconds later.
        Nothing to do, since nothing was ever written in it, is fine, too. *timeout_s*: None is `max_block_ms`.
        Cancelling ends the asking; it may be done or not, and another call tells.

        Raises:
            TransactionLost: it cannot be committed any more, and that is certain: its time ran out, or it was aborted.
            TransactionStateError: it cannot be aborted any more: it is committed (`transaction.version` 2).
            TransactionOutcomeUnknown: the id was used, fenced or forgotten since, or it was ended the other way, so
                that nothing can be told (the code is the `__cause__`); or the coordinator was asked, and has not
                answered in time (call it again).
            TransactionTimeout: no coordinator could be asked in time; nothing was done.
            BrokerError: it is refused for good, such as TransactionalIdAuthorizationFailed.
        """
        await self._administration().end(_prepared(prepared), commit=commit, timeout_s=_checked(timeout_s))

    async def end_many(
        self, prepared: Iterable[PreparedTransaction], *, commit: bool
    ) -> dict[PreparedTransaction, ProducerError | None]:
        """End many at a time, and return for each None, or why it is not ended: what `end` would raise.

        Between the first and the last of them readers see part of it.
        """
        return await self._administration().end_many([_prepared(each) for each in prepared], commit=commit)

    async def describe(self, *ids: str) -> dict[str, TransactionDescription | None]:
        """Return what is known of these transactional ids; None: never used, or forgotten (expired).

        Raises: TransactionTimeout, TransactionalIdAuthorizationFailed.
        """
        return await self._administration().describe(ids)

    async def list(
        self,
        pattern: str | None = None,
        states: Iterable[str] = (),
        longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        r"""Return the transactional ids of the cluster, all brokers asked; sorted by id.

        Args:
            pattern: a regular expression (RE2) that has to match the whole id, such as `orders\..*`; brokers from
                Kafka 4.1 on have it.
            states: Kafka's names; these only.
            longer_than_ms: open for longer than this.

        Raises: ValueError: a state that brokers do not know. InvalidRegularExpression. UnsupportedVersion: the brokers
            are too old for a filter. TransactionTimeout: not all brokers could be asked in time.
        """
        wanted = (states,) if isinstance(states, str) else tuple(states)
        return await self._administration().list(pattern, wanted, longer_than_ms)

    async def fence(self, *ids: str) -> None:
        """Take these transactional ids from whoever has them; what they have open is aborted, prepared or not.

        It returns once that is aborted. All are tried, also if one fails. Repeating it is fine.

        Raises: what the first that has failed did: TransactionTimeout, TransactionalIdAuthorizationFailed.
        """
        await self._administration().fence(ids)

    def _administration(self) -> Administration:
        if self._opened is None:
            raise ProducerClosed("the admin is not connected; use it in `async with`")
        if self._opened.loop is not asyncio.get_running_loop():
            raise WrongLoop("the admin was opened in another event loop; it can be used only there")
        return self._opened.administration


class _Opened:
    """The connections of an admin, on the event loop where they were made."""

    def __init__(self, config: ProducerConfig) -> None:
        self.loop = asyncio.get_running_loop()
        self._connections = config.connection_settings()
        self._security = connection_security(config)
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


def _checked(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else check_timeout("timeout_s", timeout_s)


def _prepared(given: object) -> PreparedTransaction:
    if not isinstance(given, PreparedTransaction):
        raise TypeError(
            f"prepared is a {type(given).__name__}; expected a PreparedTransaction, as PreparedTransaction.parse(text)"
            " returns"
        )
    return given
