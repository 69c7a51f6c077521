"""The configuration of a producer: which options cannot be combined, and each floor's settings."""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex, Unpack

from aioproducer.backoff import Backoff
from aioproducer.batching.batching_settings import BatchingSettings
from aioproducer.config.kinds import INT32_MAX, NotGiven
from aioproducer.config.names import applied_options, as_written
from aioproducer.config.options import DEFAULTS, KINDS, Options, ProducerOptions
from aioproducer.config.security_options import ALLOWED_FILES, ALLOWED_URLS, SOURCES, warn_of_unused
from aioproducer.config.servers import parse_server
from aioproducer.config.user_code import AnyPartition
from aioproducer.errors import ConfigError
from aioproducer.metadata.refresh_schedule import MetadataSettings
from aioproducer.net.connection_protocol import ConnectionSettings
from aioproducer.partitioning.partitioner import Murmur2Partitioner, Partitioner
from aioproducer.records.compression import Codec, codec, compressor
from aioproducer.records.sizes import BATCH_OVERHEAD
from aioproducer.security.secret import Secret, without_frames
from aioproducer.sender.requests import SenderSettings
from aioproducer.steps import Log

if TYPE_CHECKING:
    from aioproducer.security.security_settings import SecuritySettings

log: Final = Log(__name__)

SMALLEST_BATCH: Final = BATCH_OVERHEAD + 10
"""Bytes of a batch with one record in which nothing is."""
USUAL_REQUEST_TIMEOUT_MS: Final = 100
"""Who gives less may have meant seconds."""
MAX_IN_FLIGHT_IDEMPOTENT = 5
"""A broker remembers the last five batches of each producer and partition, no more (KIP-98, KAFKA-5494)."""

_values: Final = attrgetter(*KINDS)


class ProducerConfig(Options):
    """Every option of a producer, checked. Immutable.

    Values that may be written in several ways are kept in one: `bootstrap_servers` as a tuple of
    `host:port`, `acks` as "all", 0 or 1, a missing `client_id` as the `aioproducer-N` it stands for.

    Raises:
        ConfigError: an option is unknown, out of range, contradicts another, or needs a package that is
            not installed.
    """

    __slots__ = ()

    def __init__(self, *, bootstrap_servers: str | Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        # Not the generated one: unknown names are to fail with the nearest name, names without effect to
        # pass with a warning, and some rules depend on what was given and what is a default.
        options_given = {"bootstrap_servers": bootstrap_servers, **options}
        try:
            self._take(applied_options(options_given, KINDS), options_given)
        except ConfigError as error:
            without_frames(error)
            options_given.clear()
            del options  # this frame goes into the traceback
            raise

    def _take(self, given: Mapping[str, Any], written: Iterable[str], *, is_mapping: bool = False) -> None:
        """Check what was *given*, and keep it; errors name an option as it was *written*."""
        for name, kind in KINDS.items():
            value = given.get(name, DEFAULTS[name])
            try:
                self._set(name, kind.check(value))
            except ValueError as reason:
                raise ConfigError(f"{as_written(name, written)} = {kind.shown(value)}: {reason}") from None
        if not SOURCES.isdisjoint(given):
            self._vet_sources(written, is_mapping=is_mapping)
        self._limit_backoffs(given)
        self._check_idempotence()
        self._check_delivery_timeout(given)
        self._check_batch_sizes()
        self._check_smallest(written)
        warn_of_unused(self)
        if self.security_protocol != "PLAINTEXT":
            self.security_settings()
        if self.partitioner is not None and self.partitioner_ignore_keys:
            log.warning("config.ignored name=partitioner_ignore_keys by=partitioner")  # as in the JVM
        compressor(self._codec, self._compression_level)  # raises if its package is missing

    @classmethod
    def from_mapping(
        cls,
        options: Mapping[str, object],
        *,
        sasl_oauthbearer_allowed_files: str | Sequence[str | os.PathLike[str]] | None = None,
        sasl_oauthbearer_allowed_urls: str | Sequence[str] | None = None,
    ) -> Self:
        """Take Kafka's own spelling (`linger.ms`) or ours, and values as text or as Python objects.

        Text is read as in `.properties` files: "5", "true", "all", "a:9092, b:9092". Java's
        StringSerializer, ByteArraySerializer and RoundRobinPartitioner are recognised by class name.
        A `file:` token endpoint and assertion files are refused unless *sasl_oauthbearer_allowed_files* lists them.

        Raises:
            ConfigError: as the constructor; `bootstrap.servers` is missing; a file or URL is not allowed.
        """
        config = cls.__new__(cls)
        allowed = {
            ALLOWED_FILES: sasl_oauthbearer_allowed_files,
            ALLOWED_URLS: sasl_oauthbearer_allowed_urls,
        }
        try:
            config._take_mapping(options, allowed)  # noqa: SLF001 - our own
        except ConfigError as error:
            without_frames(error)
            del options  # this frame goes into the traceback
            raise
        return config

    def _take_mapping(self, options: Mapping[str, object], allowed: Mapping[str, object]) -> None:
        given = applied_options(options, KINDS)
        for name in given.keys() & allowed.keys():
            raise ConfigError(
                f"{as_written(name, options)}: a file or mapping cannot allow itself files or URLs; leave it out, and"
                f" give the keyword argument {name}, the flag --{name.replace('_', '-')} or the environment variable"
                f" AIOPRODUCER_{name.upper()}"
            )
        given |= {name: value for name, value in allowed.items() if value is not None}
        if "bootstrap_servers" not in given:
            raise ConfigError(
                "bootstrap.servers is missing; it names the brokers to start from, as host:port"
            )
        for name, value in given.items():
            if isinstance(value, str):
                given[name] = KINDS[name].parse(value.strip())
        self._take(given, options, is_mapping=True)

    @classmethod
    def from_properties(
        cls,
        source: str | os.PathLike[str],
        *,
        sasl_oauthbearer_allowed_files: str | Sequence[str | os.PathLike[str]] | None = None,
        sasl_oauthbearer_allowed_urls: str | Sequence[str] | None = None,
    ) -> Self:
        """Take a Java `.properties` file: a path, or (a `str` with a line break or `=` in it) its text.

        Raises:
            ConfigError: as `from_mapping`; an escape in the text is malformed.
            OSError: the file cannot be read.
        """
        from aioproducer.config.properties import read_properties  # noqa: PLC0415 - few have such files

        try:
            return cls.from_mapping(
                read_properties(source),
                sasl_oauthbearer_allowed_files=sasl_oauthbearer_allowed_files,
                sasl_oauthbearer_allowed_urls=sasl_oauthbearer_allowed_urls,
            )
        except ConfigError as error:
            without_frames(error)
            del source  # this frame goes into the traceback
            raise

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if isinstance(other, ProducerConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        values = zip(KINDS, _values(self), strict=True)
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in values)})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        held = [name for name in KINDS if isinstance(getattr(self, name), Secret | ssl.SSLContext)]
        if held:
            raise TypeError(
                f"a ProducerConfig with {', '.join(held)} cannot be pickled: pass what it is made from instead, such"
                " as the path of a .properties file, or a callable (sasl_credentials, sasl_oauth_token_provider,"
                " ssl_context), and make it where it is used"
            )
        return super().__reduce_ex__(protocol)

    def __copy__(self) -> Self:
        return self  # immutable

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @property
    def idempotent(self) -> bool:
        """Whether the producer is idempotent, once `enable_idempotence=None` has been resolved."""
        if self.enable_idempotence is None:
            return self.acks == "all" and self.retries > 0
        return self.enable_idempotence

    @property
    def max_block_s(self) -> float:
        """`max_block_ms` in seconds."""
        return self.max_block_ms / 1000

    def effective_partitioner(self) -> Partitioner:
        """Return what chooses the partitions: the user's partitioner, or Kafka's way."""
        if self.partitioner is not None:
            return self.partitioner
        return AnyPartition() if self.partitioner_ignore_keys else Murmur2Partitioner()

    def security_settings(self) -> SecuritySettings:
        """Return what secures connections.

        Raises:
            ConfigError: a file that was there when the configuration was made is not there any more, or damaged.
        """
        # Few of those who have no use for it would like to wait for its import.
        from aioproducer.config.security import security_settings  # noqa: PLC0415

        return security_settings(self, self.socket_connection_setup_timeout_ms / 1000)

    def connection_settings(self) -> ConnectionSettings:
        """Return what the network floor needs, but for `security_settings`."""
        return ConnectionSettings(
            client_id=self.client_id,
            request_timeout_s=self.request_timeout_ms / 1000,
            setup_timeout_s=self.socket_connection_setup_timeout_ms / 1000,
            setup_timeout_max_s=self.socket_connection_setup_timeout_max_ms / 1000,
            idle_timeout_s=self.connections_max_idle_ms / 1000 if self.connections_max_idle_ms > 0 else None,
            reconnect_backoff=_backoff(self.reconnect_backoff_ms, self.reconnect_backoff_max_ms),
            send_buffer_bytes=self.send_buffer_bytes,
            receive_buffer_bytes=self.receive_buffer_bytes,
            throttle_max_s=self.delivery_timeout_ms / 1000,
        )

    def metadata_settings(self) -> MetadataSettings:
        """Return what the cluster floor needs."""
        return MetadataSettings(
            bootstrap=tuple(parse_server(server) for server in self.bootstrap_servers),
            max_age_s=self.metadata_max_age_ms / 1000,
            max_idle_s=self.metadata_max_idle_ms / 1000,
            backoff=_backoff(self.retry_backoff_ms, self.retry_backoff_max_ms),
            request_timeout_s=self.request_timeout_ms / 1000,
            rebootstrap=self.metadata_recovery_strategy == "rebootstrap",
            rebootstrap_trigger_s=self.metadata_recovery_rebootstrap_trigger_ms / 1000,
            checks_cluster=self.metadata_cluster_check_enable
            and self.metadata_recovery_strategy == "rebootstrap",
        )

    def batching_settings(self) -> BatchingSettings:
        """Return what the batching floor needs."""
        return BatchingSettings(
            batch_bytes=min(self.batch_size, self._batch_max_size),
            batch_max_bytes=self._batch_max_size,
            partitioning_is_adaptive=self.partitioner_adaptive_partitioning_enable,
            availability_timeout_s=self.partitioner_availability_timeout_ms / 1000,
            linger_s=self.linger_ms / 1000,
            linger_is_adaptive=isinstance(self.linger_ms, NotGiven),
            buffer_bytes=self.buffer_memory,
            max_request_bytes=self.max_request_size,
            delivery_timeout_s=self.delivery_timeout_ms / 1000,
            max_in_flight=self.max_in_flight_requests_per_connection,
            idempotent=self.idempotent,
            batch_cap_s=self.metadata_max_age_ms / 1000,  # what a topic takes may change as its leaders do
        )

    def sender_settings(self) -> SenderSettings:
        """Return what the sender floor needs."""
        return SenderSettings(
            acks=-1 if self.acks == "all" else self.acks,
            idempotent=self.idempotent,
            max_in_flight=self.max_in_flight_requests_per_connection,
            retries=self.retries,
            request_timeout_s=self.request_timeout_ms / 1000,
            retry_backoff=_backoff(self.retry_backoff_ms, self.retry_backoff_max_ms),
            codec=self._codec,
            compression_level=self._compression_level,
            transactional_id=self.transactional_id,
        )

    @property
    def _batch_max_size(self) -> int:
        """The size at which a batch is full. A `batch_size` that was given is, as in the JVM, unless both were."""
        if not isinstance(self.batch_size, NotGiven) and isinstance(self.batch_max_size, NotGiven):
            return self.batch_size
        return min(self.batch_max_size, self.max_request_size)

    @property
    def _codec(self) -> Codec:
        return codec(self.compression_type)

    @property
    def _compression_level(self) -> int | None:
        """The level of the chosen codec; None if it has none."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # frozen for everyone else

    def _vet_sources(self, written: Iterable[str], *, is_mapping: bool) -> None:
        """Refuse files and URLs outside the lists. Keyword arguments are limited only by lists given as keyword arguments."""
        from aioproducer.config.allowed import from_environment, vetted  # noqa: PLC0415 - few need it

        files, urls = self.sasl_oauthbearer_allowed_files, self.sasl_oauthbearer_allowed_urls
        if is_mapping:
            files = files if files is not None else from_environment(ALLOWED_FILES) or ()
            urls = urls if urls is not None else from_environment(ALLOWED_URLS)
        named = {name: getattr(self, name) for name in SOURCES}
        for name, path in vetted(named, files, urls, written):
            self._set(name, path)

    def _limit_backoffs(self, given: Collection[str]) -> None:
        """Keep each pair of first and longest wait in order, as the JVM does: the longest one rules."""
        if "reconnect_backoff_ms" in given and "reconnect_backoff_max_ms" not in given:
            self._set("reconnect_backoff_max_ms", self.reconnect_backoff_ms)
        for first in ("retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout"):
            value, longest = getattr(self, f"{first}_ms"), getattr(self, f"{first}_max_ms")
            if value > longest:
                log.warning(
                    "config.limited name=%s_ms value=%d limit=%d by=%s_max_ms", first, value, longest, first
                )
                self._set(f"{first}_ms", longest)

    def _check_idempotence(self) -> None:
        if self.transactional_id is not None and not self.idempotent:
            given = "enable_idempotence = False" if self.enable_idempotence is False else ""
            given = given or ("retries = 0" if self.retries == 0 else f"acks = {self.acks!r}")
            raise ConfigError(
                f"transactional_id = {self.transactional_id!r} needs idempotence, acks = 'all' and retries; leave"
                f" out {given}, or the transactional_id"
            )
        if not self.idempotent:
            if self.enable_idempotence is None:
                log.info("config.idempotence_off acks=%s retries=%d", self.acks, self.retries)
            return
        if self.acks != "all":
            raise ConfigError(
                f"enable_idempotence = True needs acks = 'all', not {self.acks!r}; change one of the two"
            )
        if self.retries == 0:
            raise ConfigError(
                "enable_idempotence = True needs retries; leave retries at its default, or turn idempotence off"
            )
        in_flight = self.max_in_flight_requests_per_connection
        if in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
            raise ConfigError(
                f"max_in_flight_requests_per_connection = {in_flight}: an idempotent producer may have at most "
                f"{MAX_IN_FLIGHT_IDEMPOTENT}, since brokers remember no more; lower it, or set enable_idempotence = False"
            )

    def _check_batch_sizes(self) -> None:
        either_adapts = isinstance(self.batch_size, NotGiven) or isinstance(self.batch_max_size, NotGiven)
        if not either_adapts and self.batch_max_size < self.batch_size:
            raise ConfigError(
                f"batch_max_size = {self.batch_max_size}: expected at least batch_size = {self.batch_size}; raise it, or"
                " leave one of the two out"
            )

    def _check_smallest(self, written: Iterable[str]) -> None:
        """Refuse sizes that no record fits into; doubt a timeout that looks like seconds."""
        for name in ("buffer_memory", "max_request_size"):
            value = getattr(self, name)
            if value < SMALLEST_BATCH:
                raise ConfigError(
                    f"{as_written(name, written)} = {value}: no record would fit, as the smallest takes some"
                    f" {SMALLEST_BATCH} bytes; raise it, or leave it out for Kafka's default of {DEFAULTS[name]}"
                )
        if self.request_timeout_ms < USUAL_REQUEST_TIMEOUT_MS:
            log.warning(
                "config.doubtful name=request_timeout_ms value=%d reason=%r",
                self.request_timeout_ms,
                "it is in milliseconds, and brokers may take longer: answers that come later count as lost",
            )

    def _check_delivery_timeout(self, given: Collection[str]) -> None:
        """A record must have the time for one attempt; a default that is too short is lifted, as in the JVM."""
        needed = min(math.ceil(self.linger_ms) + self.request_timeout_ms, INT32_MAX)
        if self.delivery_timeout_ms >= needed:
            return
        if "delivery_timeout_ms" in given:
            raise ConfigError(
                f"delivery_timeout_ms = {self.delivery_timeout_ms}: expected at least linger_ms + request_timeout_ms "
                f"= {self.linger_ms} + {self.request_timeout_ms}; raise it, or lower one of them"
            )
        log.warning(
            "config.lifted name=delivery_timeout_ms value=%d needed=%d", self.delivery_timeout_ms, needed
        )
        self._set("delivery_timeout_ms", needed)


def _backoff(first_ms: int, longest_ms: int) -> Backoff:
    return Backoff(initial_s=first_ms / 1000, max_s=longest_ms / 1000)
