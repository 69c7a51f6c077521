"""The configuration of a producer: its options, checked, and the settings of each layer."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex, Unpack

from aioproducer._core.backoff import Backoff
from aioproducer._core.metadata.refresh_schedule import MetadataSettings
from aioproducer._core.net.connection_protocol import ConnectionSettings
from aioproducer._core.partitioning import AnyPartition, Murmur2Partitioner, Partitioner
from aioproducer._core.records.compression import codec
from aioproducer._core.security.secret import Secret, without_frames
from aioproducer._core.settings import BatchingSettings, SenderSettings
from aioproducer._core.steps import Log
from aioproducer.config.kinds import NotGiven, parse_server
from aioproducer.config.names import applied_options, written_names
from aioproducer.config.options import DEFAULTS, KINDS, Options, ProducerOptions
from aioproducer.config.rules import check_rules, compression_level, is_idempotent, limit_backoffs, set_option
from aioproducer.config.security_options import ALLOWED_FILES, ALLOWED_URLS
from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from aioproducer._core.net.connection_security import ConnectionSecurity
    from aioproducer._core.security.security_settings import SecuritySettings

log: Final = Log(__name__)

_values: Final = attrgetter(*KINDS)
_DECORATED: Final = re.compile(r"\s#|\A(['\"]).*\1\Z", re.DOTALL)
DECORATION_HINT: Final = "; comments and quotes belong to the value"


class ProducerConfig(Options):
    """The immutable configuration of a producer, with every option checked.

    Values with several spellings are stored in one form: `bootstrap_servers` as a tuple of `host:port`, `acks` as
    "all", 0 or 1, a missing `client_id` as `aioproducer-N`.

    Raises:
        ConfigError: an option is unknown, out of range, contradicts another option, or needs a package that is
            not installed.
    """

    __slots__ = ()

    def __init__(self, *, bootstrap_servers: str | Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        # A generated __init__ could not suggest names, log names without effect, or distinguish given values from defaults.
        options_given = {"bootstrap_servers": bootstrap_servers, **options}
        try:
            self._take(applied_options(options_given, KINDS), written_names(options_given))
        except ConfigError as error:
            without_frames(error)
            options_given.clear()
            del options  # the traceback keeps this frame
            raise

    def _take(
        self,
        given: Mapping[str, Any],
        written: Mapping[str, str],
        mistakes: Iterable[str] = (),
        wrong: Iterable[str] = (),
        *,
        is_mapping: bool = False,
        decorated: Collection[str] = (),
    ) -> None:
        """Check and keep the options *given*; errors contain the names as *written*.

        *decorated*: names of values with quotes or a trailing comment, whose errors have a hint.

        Raises:
            ConfigError: all *mistakes*, and the mistakes found by the check. Rules about the options in *wrong*, which
                have a mistake already, are not checked.
        """
        found: list[str | ConfigError] = list(mistakes)
        faulty = set(wrong)
        for name, kind in KINDS.items():
            value = given.get(name, DEFAULTS[name])
            if value is MISSING:
                value = ()
                faulty.add(name)
            else:
                try:
                    value = kind.check(value)
                except ValueError as reason:
                    hint = DECORATION_HINT if name in decorated else ""
                    found.append(f"{written.get(name, name)} = {kind.shown(value)}: {reason}{hint}")
                    faulty.add(name)
                    value = DEFAULTS[name]
            set_option(self, name, value)
        limit_backoffs(self, given)
        check_rules(self, given, written, faulty, found, is_mapping=is_mapping)
        if self.partitioner is not None and self.partitioner_ignore_keys:
            # The Java client also ignores the option.
            log.warning("config.ignored name=partitioner_ignore_keys by=partitioner")

    @classmethod
    def from_mapping(
        cls,
        options: Mapping[str, object],
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        prefix: str | Sequence[str] = (),
        config_providers: Collection[str] = (),
        sasl_oauthbearer_allowed_files: str | Sequence[str | os.PathLike[str]] | None = None,
        sasl_oauthbearer_allowed_urls: str | Sequence[str] | None = None,
    ) -> Self:
        """Return the configuration in *options*: Kafka's names (`linger.ms` or `linger_ms`), values as text or Python objects.

        Text is read as in `.properties` files: "5", "true", "all", "a:9092, b:9092". Java's
        StringSerializer, ByteArraySerializer and RoundRobinPartitioner are recognised by class name.
        Names of librdkafka are translated. Options of consumers, admin clients and schema registries are left out with
        one warning. A `file:` token endpoint and assertion files are refused unless *sasl_oauthbearer_allowed_files*
        lists them.

        Args:
            options: Names and values.
            bootstrap_servers: Brokers; override the brokers in *options*. Files for Kafka's tools often contain no brokers.
            prefix: Read only the options with this prefix (`producer.`, `spring.kafka.`) or in this section (`[default]`).
                If several prefixes give an option, the last prefix wins. Default: no prefix.
            config_providers: Allowed config providers (KIP-297) of references in values: some of `env`, `file` and
                `directory`. Default: none, which makes a reference an error.
            sasl_oauthbearer_allowed_files: Files that *options* may name for OAUTHBEARER.
            sasl_oauthbearer_allowed_urls: Token endpoints that *options* may name.

        Raises:
            ConfigError: an error of the constructor; `bootstrap.servers` is missing; a file or URL is not allowed. The
                error lists all mistakes, one per line.
        """
        config = cls.__new__(cls)
        allowed = {
            ALLOWED_FILES: sasl_oauthbearer_allowed_files,
            ALLOWED_URLS: sasl_oauthbearer_allowed_urls,
        }
        try:
            config._take_mapping(options, bootstrap_servers, allowed, prefix, config_providers)  # noqa: SLF001 - of this package
        except ConfigError as error:
            without_frames(error)
            del options  # the traceback keeps this frame
            raise
        return config

    def _take_mapping(
        self,
        options: Mapping[str, object],
        servers: str | Sequence[str] | None,
        allowed: Mapping[str, object],
        prefix: str | Sequence[str],
        config_providers: Collection[str],
    ) -> None:
        from aioproducer.config.mapping import read_mapping  # noqa: PLC0415 - not needed for keyword arguments

        reading = read_mapping(options, KINDS, prefix=prefix, config_providers=config_providers)
        if servers is not None:
            reading.applied["bootstrap_servers"] = servers
        reading.log()
        given, mistakes, wrong = reading.applied, reading.mistakes, reading.wrong
        for name in given.keys() & allowed.keys():
            wrong.add(name)
            mistakes.append(
                f"{reading.written[name]}: a file or mapping cannot allow itself files or URLs; leave it out, and"
                f" give the keyword argument {name}, the flag --{name.replace('_', '-')} or the environment variable"
                f" AIOPRODUCER_{name.upper()}"
            )
        given |= {name: value for name, value in allowed.items() if value is not None}
        if "bootstrap_servers" not in given and "bootstrap_servers" not in wrong:
            mistakes.append(
                "bootstrap.servers is missing; it names the brokers to start from, as host:port"
                + (f"; no option of that name is behind the prefix {_listed(prefix)}" if prefix else "")
            )
        decorated: set[str] = set()
        for name, value in given.items():
            if isinstance(value, str):
                given[name] = KINDS[name].parse(value.strip())
                if _DECORATED.search(value.strip()):
                    decorated.add(name)
        self._take(given, reading.written, mistakes, wrong, is_mapping=True, decorated=decorated)

    @classmethod
    def from_properties(
        cls,
        source: str | os.PathLike[str],
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        prefix: str | Sequence[str] = (),
        config_providers: Collection[str] = (),
        sasl_oauthbearer_allowed_files: str | Sequence[str | os.PathLike[str]] | None = None,
        sasl_oauthbearer_allowed_urls: str | Sequence[str] | None = None,
    ) -> Self:
        """Return the configuration in a Java `.properties` file: a path, or (a `str` with a line break or `=`) its text.

        *prefix* selects a section of a file with sections, such as an INI file: `prefix="[default]"`.

        Args:
            source: A path, or the text.
            bootstrap_servers: Brokers; override the brokers in the file.
            prefix: Read only the options with this prefix or in this section. If several prefixes give an option, the
                last prefix wins. Default: no prefix.
            config_providers: Allowed config providers (KIP-297) of references in values: some of `env`, `file` and
                `directory`. Default: none, which makes a reference an error.
            sasl_oauthbearer_allowed_files: Files that the file may name for OAUTHBEARER.
            sasl_oauthbearer_allowed_urls: Token endpoints that the file may name.

        Raises:
            ConfigError: an error of `from_mapping`; a malformed escape. Each line of the error begins with the path.
            OSError: the file cannot be read.
        """
        from aioproducer.config.properties import is_text, name_file, read_properties  # noqa: PLC0415 - rarely used

        try:
            return cls.from_mapping(
                read_properties(source),
                bootstrap_servers=bootstrap_servers,
                prefix=prefix,
                config_providers=config_providers,
                sasl_oauthbearer_allowed_files=sasl_oauthbearer_allowed_files,
                sasl_oauthbearer_allowed_urls=sasl_oauthbearer_allowed_urls,
            )
        except ConfigError as error:
            without_frames(error)
            if not is_text(source):
                name_file(error, source)
            del source  # the traceback keeps this frame
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
                f"a ProducerConfig with {', '.join(held)} cannot be pickled: pass its source instead, such"
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
        """True if the producer is idempotent, after `enable_idempotence=None` is resolved."""
        return is_idempotent(self)

    @property
    def max_block_s(self) -> float:
        """`max_block_ms` in seconds."""
        return self.max_block_ms / 1000

    def effective_partitioner(self) -> Partitioner:
        """Return the user's partitioner, or Kafka's default partitioner."""
        if self.partitioner is not None:
            return self.partitioner
        return AnyPartition() if self.partitioner_ignore_keys else Murmur2Partitioner()

    def security_settings(self) -> SecuritySettings:
        """Return the settings of TLS and authentication.

        Raises:
            ConfigError: a file was deleted or damaged after the configuration was created.
        """
        # Plaintext producers skip this import.
        from aioproducer.config.security import security_settings  # noqa: PLC0415

        return security_settings(self, self.socket_connection_setup_timeout_ms / 1000)

    def connection_security(self) -> ConnectionSecurity | None:
        """Return the security of connections; None for PLAINTEXT."""
        if self.security_protocol == "PLAINTEXT":
            return None
        from aioproducer._core.net.connection_security import ConnectionSecurity  # noqa: PLC0415 - not for plaintext

        return ConnectionSecurity(
            self.security_settings(), backoff=self.connection_settings().reconnect_backoff
        )

    def connection_settings(self) -> ConnectionSettings:
        """Return the settings of the network layer, without `security_settings`."""
        return ConnectionSettings(
            client_id=self.client_id,
            request_timeout_s=self.request_timeout_ms / 1000,
            setup_timeout_s=self.socket_connection_setup_timeout_ms / 1000,
            setup_timeout_max_s=self.socket_connection_setup_timeout_max_ms / 1000,
            idle_timeout_s=self.connections_max_idle_ms / 1000 if self.connections_max_idle_ms > 0 else None,
            reconnect_backoff=_backoff(self.reconnect_backoff_ms, self.reconnect_backoff_max_ms),
            send_buffer_bytes=self.send_buffer_bytes,
            receive_buffer_bytes=self.receive_buffer_bytes,
            dial=self.dial,
            throttle_max_s=self.delivery_timeout_ms / 1000,
        )

    def metadata_settings(self) -> MetadataSettings:
        """Return the settings of the metadata layer."""
        return MetadataSettings(
            bootstrap=tuple(parse_server(server) for server in self.bootstrap_servers),
            max_age_s=self.metadata_max_age_ms / 1000,
            max_idle_s=self.metadata_max_idle_ms / 1000,
            backoff=_backoff(self.retry_backoff_ms, self.retry_backoff_max_ms),
            request_timeout_s=self.request_timeout_ms / 1000,
            rebootstrap=self.metadata_recovery_strategy == "rebootstrap",
            rebootstrap_trigger_s=self.metadata_recovery_rebootstrap_trigger_ms / 1000,
            allow_auto_create_topics=self.allow_auto_create_topics,
            checks_cluster=self.metadata_cluster_check_enable
            and self.metadata_recovery_strategy == "rebootstrap",
        )

    def batching_settings(self) -> BatchingSettings:
        """Return the settings of the batching layer."""
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
            batch_cap_s=self.metadata_max_age_ms / 1000,  # a topic's limit may change with its leaders
        )

    def sender_settings(self) -> SenderSettings:
        """Return the settings of the sender."""
        return SenderSettings(
            acks=-1 if self.acks == "all" else self.acks,
            idempotent=self.idempotent,
            max_in_flight=self.max_in_flight_requests_per_connection,
            retries=self.retries,
            request_timeout_s=self.request_timeout_ms / 1000,
            retry_backoff=_backoff(self.retry_backoff_ms, self.retry_backoff_max_ms),
            codec=codec(self.compression_type),
            compression_level=compression_level(self),
            transactional_id=self.transactional_id,
        )

    @property
    def _batch_max_size(self) -> int:
        """Size of a full batch: `batch_max_size`, or (as in the Java client) `batch_size` if only that option is given."""
        if not isinstance(self.batch_size, NotGiven) and isinstance(self.batch_max_size, NotGiven):
            return self.batch_size
        return min(self.batch_max_size, self.max_request_size)


def _backoff(first_ms: int, longest_ms: int) -> Backoff:
    return Backoff(initial_s=first_ms / 1000, max_s=longest_ms / 1000)


def _listed(prefix: str | Sequence[str]) -> str:
    return repr(prefix) if isinstance(prefix, str) else " or ".join(map(repr, prefix))
