"""Rules about several options of a producer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from aioproducer._core.records.columns import BATCH_OVERHEAD
from aioproducer._core.records.compression import codec, compressor
from aioproducer._core.steps import Log
from aioproducer.config.kinds import INT32_MAX, NotGiven
from aioproducer.config.names import option_name
from aioproducer.config.options import DEFAULTS, Options
from aioproducer.config.security_options import (
    ALLOWED_FILES,
    ALLOWED_URLS,
    SOURCES,
    parts_of_protocol,
    warn_of_unused,
)
from aioproducer.errors import ConfigError

log: Final = Log(__name__)

SMALLEST_BATCH: Final = BATCH_OVERHEAD + 10
"""Bytes of a batch with one empty record."""
USUAL_REQUEST_TIMEOUT_MS: Final = 100
"""Minimum request timeout without a warning: a smaller number may be meant in seconds."""
MAX_IN_FLIGHT_IDEMPOTENT = 5
"""Number of batches that a broker keeps per producer and partition (KIP-98, KAFKA-5494)."""

_IDEMPOTENCE: Final = ("acks", "enable_idempotence", "retries")
_TIMEOUTS: Final = ("delivery_timeout_ms", "linger_ms", "request_timeout_ms")


def check_rules(
    config: Options,
    given: Collection[str],
    written: Mapping[str, str],
    faulty: Collection[str],
    mistakes: list[str | ConfigError],
    *,
    is_mapping: bool,
) -> None:
    """Check the rules whose options are not *faulty*, and adjust defaults to the options *given*.

    Raises:
        ConfigError: *mistakes*, and the mistakes found by the rules.
    """
    faulty = set(faulty)
    encryption = [name for name in faulty if name.startswith(("security_", "ssl_"))]
    login = [name for name in faulty if name.startswith(("security_", "sasl_"))]
    rules: tuple[tuple[Callable[[], object], Collection[str]], ...] = (
        (partial(_check_sources, config, given, written, is_mapping=is_mapping), SOURCES),
        (partial(_check_transactional, config), (*_IDEMPOTENCE, "transactional_id")),
        (partial(_check_acks, config), ("acks", "enable_idempotence")),
        (partial(_check_retries, config), ("retries", "enable_idempotence")),
        (partial(_check_in_flight, config), (*_IDEMPOTENCE, "max_in_flight_requests_per_connection")),
        (partial(_check_delivery_timeout, config, given), _TIMEOUTS),
        (partial(_check_batch_sizes, config), ("batch_size", "batch_max_size")),
        (partial(_check_smallest, config, "buffer_memory", written), ("buffer_memory",)),
        (partial(_check_smallest, config, "max_request_size", written), ("max_request_size",)),
        (partial(_check_rack, config, written), ("client_rack", "partitioner_rack_aware")),
        (partial(_check_security, config, tls=False), login),
        (partial(_check_security, config, tls=True), encryption),
        # compressor() raises if a package is missing
        (
            lambda: compressor(codec(config.compression_type), compression_level(config)),
            ("compression_type",),
        ),
    )
    for rule, names in rules:
        if faulty.isdisjoint(names):
            try:
                rule()
            except ConfigError as error:
                mistakes.append(_as_written(error, written))
    raise_all(mistakes)
    if not is_idempotent(config) and config.enable_idempotence is None:
        log.info("config.idempotence_off acks=%s retries=%d", config.acks, config.retries)
    if config.request_timeout_ms < USUAL_REQUEST_TIMEOUT_MS:
        log.warning(
            "config.doubtful name=request_timeout_ms value=%d reason=%r",
            config.request_timeout_ms,
            "the unit is milliseconds, and brokers may need longer; later responses are discarded",
        )
    warn_of_unused(config)


def _as_written(error: ConfigError, written: Mapping[str, str]) -> ConfigError:
    """Return *error* with the names of other clients, such as `ssl.ca.location`, in place of Kafka's names."""
    translated = {option: name for option, name in written.items() if option_name(name) != option}
    if not translated:
        return error
    text = re.sub(r"\w+", lambda word: translated.get(word[0], word[0]), str(error))
    renamed = ConfigError(text)
    renamed.__cause__ = error.__cause__
    return renamed


def is_idempotent(config: Options) -> bool:
    """Return True if the producer is idempotent, after `enable_idempotence=None` is resolved."""
    if config.enable_idempotence is None:
        return config.acks == "all" and config.retries > 0
    return config.enable_idempotence


def compression_level(config: Options) -> int | None:
    """Return the level of the chosen codec; None if the codec has no levels."""
    level: int | None = getattr(config, f"compression_{config.compression_type}_level", None)
    return level


def _check_rack(config: Options, written: Mapping[str, str]) -> None:
    if config.partitioner_rack_aware and config.client_rack is None:
        name = written.get("partitioner_rack_aware", "partitioner_rack_aware")
        raise ConfigError(
            f"{name} = True needs client_rack; give the rack of this client, as in the brokers' broker.rack"
        )


def limit_backoffs(config: Options, given: Collection[str]) -> None:
    """Limit each first wait to its maximum, as the JVM does. `reconnect_backoff_ms` without a maximum is also the maximum."""
    if "reconnect_backoff_ms" in given and "reconnect_backoff_max_ms" not in given:
        set_option(config, "reconnect_backoff_max_ms", config.reconnect_backoff_ms)
    for first in ("retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout"):
        value, longest = getattr(config, f"{first}_ms"), getattr(config, f"{first}_max_ms")
        if value > longest:
            log.warning(
                "config.limited name=%s_ms value=%d limit=%d by=%s_max_ms", first, value, longest, first
            )
            set_option(config, f"{first}_ms", longest)


def _check_transactional(config: Options) -> None:
    if config.transactional_id is None or is_idempotent(config):
        return
    given = "enable_idempotence = False" if config.enable_idempotence is False else ""
    given = given or ("retries = 0" if config.retries == 0 else f"acks = {config.acks!r}")
    raise ConfigError(
        f"transactional_id = {config.transactional_id!r} needs idempotence, acks = 'all' and retries; leave"
        f" out {given}, or the transactional_id"
    )


def _check_acks(config: Options) -> None:
    if config.enable_idempotence and config.acks != "all":
        raise ConfigError(
            f"enable_idempotence = True needs acks = 'all', not {config.acks!r}; change one of the two"
        )


def _check_retries(config: Options) -> None:
    if config.enable_idempotence and config.retries == 0:
        raise ConfigError(
            "enable_idempotence = True needs retries; leave retries at its default, or turn idempotence off"
        )


def _check_in_flight(config: Options) -> None:
    in_flight = config.max_in_flight_requests_per_connection
    if is_idempotent(config) and in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
        raise ConfigError(
            f"max_in_flight_requests_per_connection = {in_flight}: an idempotent producer may have at most "
            f"{MAX_IN_FLIGHT_IDEMPOTENT}, because brokers keep no more; lower it, or set enable_idempotence = False"
        )


def _check_batch_sizes(config: Options) -> None:
    either_adapts = isinstance(config.batch_size, NotGiven) or isinstance(config.batch_max_size, NotGiven)
    if not either_adapts and config.batch_max_size < config.batch_size:
        raise ConfigError(
            f"batch_max_size = {config.batch_max_size}: expected at least batch_size = {config.batch_size}; raise it, or"
            " leave one of the two out"
        )


def _check_smallest(config: Options, name: str, written: Mapping[str, str]) -> None:
    value = getattr(config, name)
    if value < SMALLEST_BATCH:
        raise ConfigError(
            f"{written.get(name, name)} = {value}: no record would fit, because the smallest batch needs"
            f" {SMALLEST_BATCH} bytes; raise the value, or remove the option for Kafka's default of {DEFAULTS[name]}"
        )


def _check_security(config: Options, *, tls: bool) -> None:
    has_tls, has_login = parts_of_protocol(config)
    if has_tls if tls else has_login:
        from aioproducer.config.security import sasl_settings, tls_settings  # noqa: PLC0415 - rarely needed

        _ = tls_settings(config) if tls else sasl_settings(config)


def _check_delivery_timeout(config: Options, given: Collection[str]) -> None:
    """Require `delivery_timeout_ms` to allow one attempt; lengthen a default that is too short, as in the JVM client."""
    needed = min(math.ceil(config.linger_ms) + config.request_timeout_ms, INT32_MAX)
    if config.delivery_timeout_ms >= needed:
        return
    if "delivery_timeout_ms" in given:
        raise ConfigError(
            f"delivery_timeout_ms = {config.delivery_timeout_ms}: expected at least linger_ms + request_timeout_ms "
            f"= {config.linger_ms} + {config.request_timeout_ms}; raise it, or lower one of them"
        )
    log.warning(
        "config.lifted name=delivery_timeout_ms value=%d needed=%d", config.delivery_timeout_ms, needed
    )
    set_option(config, "delivery_timeout_ms", needed)


def _check_sources(
    config: Options, given: Collection[str], written: Mapping[str, str], *, is_mapping: bool
) -> None:
    """Refuse files and URLs outside the allowed lists. Lists of the environment limit mappings only."""
    if SOURCES.isdisjoint(given):
        return
    from aioproducer.config.security import checked_sources, from_environment  # noqa: PLC0415 - rarely needed

    files, urls = config.sasl_oauthbearer_allowed_files, config.sasl_oauthbearer_allowed_urls
    if is_mapping:
        files = files if files is not None else from_environment(ALLOWED_FILES) or ()
        urls = urls if urls is not None else from_environment(ALLOWED_URLS)
    named = {name: getattr(config, name) for name in SOURCES}
    for name, path in checked_sources(named, files, urls, written):
        set_option(config, name, path)


def set_option(config: Options, name: str, value: object) -> None:
    """Set an option, although the class is immutable for its users."""
    object.__setattr__(config, name, value)


def raise_all(mistakes: Sequence[str | ConfigError]) -> None:
    """Raise one error for all *mistakes*, one per line. A single ConfigError keeps its cause."""
    if len(mistakes) == 1 and isinstance(mistakes[0], ConfigError):
        raise mistakes[0]
    if mistakes:
        raise ConfigError("\n".join(map(str, mistakes)))
