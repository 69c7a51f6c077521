"""The options of the sink: `topic`, and `kafka.…` for the producer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache, reduce
from importlib import import_module
from typing import Any, Final

from aioproducer._core.intake.checks import check_topic
from aioproducer.config import ProducerConfig
from aioproducer.config.options import KINDS
from aioproducer.errors import ConfigError
from aioproducer.spark.bad_rows import FAIL, ON_BAD_ROW, dead_letter_topic
from aioproducer.spark.delivery import OPTIONS, TRANSACTION_TIMEOUT_MS, ExactlyOnce, exactly_once
from aioproducer.spark.memory_limit import buffer_bytes
from aioproducer.spark.messages import log
from aioproducer.spark.rate_limit import OPTIONS as RATE_OPTIONS, RateLimit, rate_limit

PREFIX: Final = "kafka."
TIMESTAMP_COLUMN: Final = "timestampColumn"

BATCH_BYTES: Final = 256 * 1024
"""Default of `kafka.batch.size`. Thousands of rows fill a batch at once, so larger batches than Kafka's 16 KiB cost no
delay and save work in the producer and on the broker."""

BUFFER_NAMES: Final = frozenset(("buffer.memory", "buffer_memory", "queue.buffering.max.kbytes"))
"""Names of the buffer's size. Without these options, a memory limit of the process bounds the buffer."""

BATCH_NAMES: Final = frozenset(("batch.size", "batch_size", "max.batch.size", "max_batch_size"))
REQUEST_NAMES: Final = ("max.request.size", "max_request_size", "message.max.bytes")
"""Names of the largest request, in the order of precedence."""

SPARK_OPTIONS: Final = ("checkpointLocation", "includeHeaders", "queryName")
"""Options of Spark itself, which Spark also passes to the sink."""

SOURCE_OPTIONS: Final = tuple(
    """
    assign subscribe subscribePattern
    startingOffsets startingOffsetsByTimestamp startingOffsetsByTimestampStrategy startingTimestamp
    endingOffsets endingOffsetsByTimestamp endingTimestamp
    maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay maxRecordsPerPartition minPartitions
    failOnDataLoss groupIdPrefix
    fetchOffset.numRetries fetchOffset.retryIntervalMs kafkaConsumer.pollTimeoutMs
    """.split()  # noqa: SIM905 - shorter than quoted names
)
"""Options of Spark's Kafka source. Some jobs use one set of options for source and sink."""

SOURCE_PREFIXES: Final = ("fetchoffset.", "kafkaconsumer.")

CONSUMER_OPTIONS: Final = frozenset(
    """
    auto.commit.interval.ms check.crcs default.api.timeout.ms exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records partition.assignment.strategy session.timeout.ms
    """.split()  # noqa: SIM905 - shorter than quoted names
)
"""Options of the source with the prefix `kafka.` that a producer does not have. From ConsumerConfig of Kafka 4.3."""

SPELLINGS: Final[Mapping[str, str]] = {
    name.lower(): name
    for name in (
        "topic",
        ON_BAD_ROW,
        TIMESTAMP_COLUMN,
        *OPTIONS,
        *RATE_OPTIONS,
        *SPARK_OPTIONS,
        *SOURCE_OPTIONS,
    )
}
"""Documented spelling of option names, which Spark converts to lower case."""

REFUSED: Final[Mapping[str, str]] = {
    "key.serializer": "as keys are strings or bytes already",
    "value.serializer": "as values are strings or bytes already",
    "interceptor.classes": "as Java classes cannot be loaded here",
    "transactional.id": "as tasks cannot share one; transactionalIdPrefix makes one for each",
}
"""Options that Spark's own sink refuses or cannot support."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """A producer's configuration, sent to the tasks. Tasks with equal settings share a producer."""

    items: tuple[tuple[str, str], ...] = field(repr=False)
    """Kafka's names and values, sorted. Values may be secret, so `repr` hides them."""

    def with_transactional_id(self, name: str) -> ProducerSettings:
        """Return these settings with the transactional id *name*."""
        items = dict(self.items)
        if "transaction_timeout_ms" not in items:
            items.setdefault("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
        return ProducerSettings(tuple(sorted((items | {"transactional.id": name}).items())))

    def config(self) -> ProducerConfig:
        """Return the configuration of a producer.

        Raises:
            ConfigError: an option is unknown, out of range, or contradicts another option.
        """
        return _config(self)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write, checked."""

    topic: str | None
    """Topic of all rows; None if a column has the topics."""
    producer: ProducerSettings
    delivery: ExactlyOnce | None = None
    """Options of exactly-once delivery; None: at least once."""
    dead_letters: str | None = None
    """Topic of rows that cannot be sent; None: these rows fail their task."""
    timestamp_column: str | None = None
    """Column with the times of the records; None: the time of sending."""
    limit: RateLimit | None = None
    """Rate limit of the job; None: no limit."""


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write; names are case-insensitive, because Spark converts them to lower case.

    Raises:
        ConfigError: an option is missing, unknown or invalid.
    """
    topic: str | None = None
    kafka: dict[str, str] = {}
    source_options: list[str] = []
    ours: dict[str, str] = {}
    for given, value in options.items():
        name = given.lower()
        if _is_source_option(name):
            source_options.append(SPELLINGS.get(name, name))
        elif name.startswith(PREFIX):
            kafka[_accepted(name.removeprefix(PREFIX))] = value
        elif SPELLINGS.get(name) in (ON_BAD_ROW, TIMESTAMP_COLUMN, *OPTIONS, *RATE_OPTIONS):
            ours[SPELLINGS[name]] = value
        elif name == "topic":
            topic = _legal(value)
        elif name == "path":
            raise ConfigError(f"rows go to a topic, not to the path {value!r}: use the topic option")
        elif name not in SPELLINGS:
            raise ConfigError(_unknown(name))
    if "bootstrap.servers" not in kafka and "bootstrap_servers" not in kafka:
        raise ConfigError(
            "option 'kafka.bootstrap.servers' is missing; it names the brokers to start from, as host:port; in SQL it"
            " is part of each write: INSERT INTO … WITH ('kafka.bootstrap.servers' = 'host:port', 'topic' = '…')"
        )
    if not BATCH_NAMES & kafka.keys():
        kafka["batch.size"] = _batch_bytes(kafka)
    producer = ProducerSettings(tuple(sorted(kafka.items())))
    dead_letters = dead_letter_topic(ours.pop(ON_BAD_ROW, FAIL), topic)
    timestamp_column = ours.pop(TIMESTAMP_COLUMN, None)
    delivery = exactly_once(ours)
    limit = rate_limit(ours)
    # config() is called here, so that the driver raises its errors
    (producer if delivery is None else producer.with_transactional_id(delivery.prefix)).config()
    sink = SinkOptions(topic, producer, delivery, dead_letters, timestamp_column, limit)
    _warn_without_effect(tuple(source_options), sink)
    return sink


def _legal(topic: str) -> str:
    try:
        return check_topic(topic)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _is_source_option(name: str) -> bool:
    if name.startswith(PREFIX):
        return name.removeprefix(PREFIX) in CONSUMER_OPTIONS
    return SPELLINGS.get(name) in SOURCE_OPTIONS or name.startswith(SOURCE_PREFIXES)


def _accepted(name: str) -> str:
    dotted = name.replace("_", ".")
    if dotted in REFUSED:
        raise ConfigError(f"Kafka option '{dotted}' is not supported {REFUSED[dotted]}.")
    return name


def _batch_bytes(kafka: Mapping[str, str]) -> str:
    """Return the default batch size: `BATCH_BYTES`, or the largest request if smaller."""
    largest = next((kafka[name] for name in REQUEST_NAMES if name in kafka), "")
    return str(min(BATCH_BYTES, int(largest)) if largest.isdecimal() else BATCH_BYTES)


def _unknown(name: str) -> str:
    candidates = SPELLINGS.keys() | {PREFIX + each.replace("_", ".") for each in KINDS}
    bare = PREFIX + name.replace("_", ".")
    nearest = [bare] if bare in candidates else get_close_matches(name, sorted(candidates), n=1)
    hint = f"; did you mean {SPELLINGS.get(nearest[0], nearest[0])!r}?" if nearest else ""
    return f"unknown option {name!r}{hint}"


@lru_cache(maxsize=16)  # Spark plans each micro-batch twice; each warning is logged once
def _warn_without_effect(names: tuple[str, ...], _sink: SinkOptions) -> None:
    for name in names:
        log.warning("spark.source_option.without_effect name=%s", name)


@lru_cache(maxsize=16)
def _config(settings: ProducerSettings) -> ProducerConfig:
    try:
        given = with_named_code(dict(settings.items))
        return _within_limit(ProducerConfig.from_mapping(given), given)
    except ConfigError as error:
        raise ConfigError(f"among the options that begin with 'kafka.': {error}") from None


def _within_limit(config: ProducerConfig, given: Mapping[str, object]) -> ProducerConfig:
    """Return *config*, made from *given*, with a smaller buffer if this process has a memory limit."""
    if BUFFER_NAMES & given.keys():
        return config
    bounded = buffer_bytes(config.buffer_memory, max(config.max_request_size, config.batch_size))
    if bounded == config.buffer_memory:
        return config
    return ProducerConfig.from_mapping({**given, "buffer.memory": bounded})


NAMED: Final = ("sasl.credentials", "sasl.oauth.token.provider", "ssl.context")
"""Options with a callable, given by name. Each process imports the callable, so secrets stay in the process."""


def with_named_code(options: Mapping[str, str]) -> dict[str, Any]:
    """Return *options* with the callables in place of their names.

    Raises: ConfigError: a name is invalid, or names nothing callable.
    """
    return {
        name: _callable(name, value) if name.replace("_", ".") in NAMED else value
        for name, value in options.items()
    }


def _callable(option: str, text: str) -> Callable[..., Any]:
    module, colon, path = text.strip().partition(":")
    if not (colon and all(part.isidentifier() for part in (*module.split("."), *path.split(".")))):
        # the text may be the secret itself, so it is hidden
        raise ConfigError(f"{option}: expected the name of a function, such as package.module:function")
    try:
        found = reduce(getattr, path.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{option} = {text!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigError(f"{option} = {text!r} is of type {type(found).__name__}, which cannot be called")
    return found
