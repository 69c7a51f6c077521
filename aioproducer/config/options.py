"""All options: name, accepted and stored types, default, and meaning."""

# ruff: noqa: I002 - typing would compile each annotation of a TypedDict
from collections.abc import Mapping, Sequence
from dataclasses import Field, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from aioproducer._core.net.dial import DialHook
from aioproducer._core.partitioning import Partitioner, PartitionFunction
from aioproducer._core.records.compression import LEVELS, Codec
from aioproducer.config.kinds import (
    INT32_MAX,
    INT64_MAX,
    Acks,
    Choice,
    ClientId,
    Flag,
    Integer,
    Kind,
    NotGiven,
    Number,
    Rack,
    Servers,
    TransactionalId,
    flag,
    has_options,
    int_ms,
    long_ms,
    option,
    optional,
)
from aioproducer.config.object_kinds import DialKind, InterceptorsKind, PartitionerKind, SerializerKind
from aioproducer.config.security_options import SecurityOptions, SecurityOptionsGiven
from aioproducer.serializers import AnySerializer

if TYPE_CHECKING:
    from aioproducer.interceptors import AnyInterceptor

CompressionType: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
PartitionerName: TypeAlias = Literal[
    "random",
    "consistent",
    "consistent_random",
    "murmur2",
    "murmur2_random",
    "fnv1a",
    "fnv1a_random",
    "fnv1a_reference_random",
]
"""librdkafka's and Sarama's partitioners."""


class ProducerOptions(SecurityOptionsGiven, total=False):
    """Keyword arguments of a producer besides `bootstrap_servers`; `ProducerConfig` documents each option."""

    client_id: str | None
    client_rack: str | None
    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    enable_idempotence: bool | None
    max_in_flight_requests_per_connection: int
    retries: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_block_ms: int
    buffer_memory: int
    batch_size: int
    batch_max_size: int
    linger_ms: float
    max_request_size: int
    compression_type: CompressionType | None
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    key_serializer: AnySerializer | None
    value_serializer: AnySerializer | None
    partitioner: Partitioner | PartitionFunction | PartitionerName | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_rack_aware: bool
    interceptors: "Sequence[AnyInterceptor]"
    enable_metrics_push: bool
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    start_wait: bool
    bootstrap_timeout_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    dial: DialHook | None
    connections_max_idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_strategy: Literal["none", "rebootstrap"]
    metadata_recovery_rebootstrap_trigger_ms: int
    metadata_cluster_check_enable: bool
    allow_auto_create_topics: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool


def level(codec: Codec, besides: int | None = None) -> Integer:
    """Return the kind of an option for the compression levels of *codec*; *besides* is one more accepted value."""
    levels = LEVELS[codec]
    return Integer(levels[0], levels[-1], besides=besides)


@has_options
class Options(SecurityOptions):
    """Options with Kafka's names (`_` for `.`) and the defaults of Kafka 4. Each value has one stored form."""

    bootstrap_servers: tuple[str, ...] = field(
        metadata={
            "kind": Servers(),
            "meaning": "Addresses of brokers for the first connection. One reachable broker is enough; the producer"
            " discovers the other brokers.",
        }
    )
    client_id: str = optional(
        ClientId(), "Client name in the brokers' logs, metrics and quotas. Defaults to `aioproducer-N`."
    )
    client_rack: str | None = optional(
        Rack(),
        "Rack (availability zone) of this client, as in `broker.rack` of the brokers. Used by `partitioner_rack_aware`.",
    )
    acks: Literal["all", 0, 1] = option(
        "all",
        Acks(),
        "Acknowledgements required per record: `all` in-sync replicas, `1` (leader only) or `0` (none).",
    )
    enable_idempotence: bool | None = optional(
        Flag(optional=True),
        "Prevents duplicates and reordering by retries. None: enabled, unless `acks` or `retries` exclude it.",
    )
    max_in_flight_requests_per_connection: int = option(
        5, Integer(1), "Maximum number of Produce requests in flight per connection."
    )
    retries: int = option(
        INT32_MAX,
        Integer(0),
        "Maximum number of retries per batch. Prefer `delivery_timeout_ms` to bound retries.",
    )
    delivery_timeout_ms: int = int_ms(
        120_000,
        "Time limit from the call to the acknowledgement; the record then fails with `DeliveryTimeout`.",
        low=1,
    )
    request_timeout_ms: int = int_ms(
        30_000,
        "Time limit for a broker's response. The connection is then closed and its requests are retried. Throttle time"
        " (quotas) does not count.",
        low=1,
    )
    max_block_ms: int = long_ms(
        60_000, "Maximum time a call may wait for metadata, async serializers and memory together."
    )
    buffer_memory: int = option(
        33_554_432,
        Integer(1, INT64_MAX, unit="bytes"),
        "Memory limit for queued and in-flight records of all partitions. With the accelerator, batches count with the"
        " capacity of their buffers.",
    )
    batch_size: int = option(
        NotGiven(16_384),
        Integer(0, unit="bytes"),
        "Batch size in bytes (estimated after compression). A batch of this size is sent without lingering"
        " and accepts no more records. If unset, a batch is ready at 16 KiB and grows up to `batch_max_size`"
        " until it can be sent. 0: one record per batch.",
    )
    batch_max_size: int = option(
        NotGiven(262_144),
        Integer(0, unit="bytes"),
        "Upper bound of a growing batch, after compression, and at most `max_request_size`. Defaults to"
        " `batch_size` if `batch_size` is set.",
    )
    linger_ms: float = option(
        NotGiven(5),
        Number(0, unit="ms"),
        "Time that a partial batch waits for more records. If unset, a batch is sent immediately if its"
        " broker has no request of this producer in flight; otherwise the batch waits until the broker has"
        " responded or the batch is half full, for at most 5 ms.",
    )
    max_request_size: int = option(
        1_048_576, Integer(1, unit="bytes"), "Maximum size of a request, and of a record before compression."
    )
    compression_type: CompressionType = option(
        "none",
        Choice(get_args(CompressionType), absent="none"),
        "Compression codec of batches.",
    )
    compression_gzip_level: int = option(
        -1,
        level(Codec.GZIP, besides=-1),
        "Compression level. Higher levels compress better and are slower. -1 (default) selects zlib's level"
        " 6. Levels 1 and 2 use isal if the extra `isal` is installed: on JSON, isal is at least 5 times as"
        " fast as level -1 and produces 11 to 15 % more bytes.",
    )
    compression_lz4_level: int = option(
        9,
        level(Codec.LZ4),
        "Level of the high-compression mode. 9 (default) selects the fast mode, as in the Java client.",
    )
    compression_zstd_level: int = option(
        3,
        level(Codec.ZSTD),
        "Compression level. Higher levels usually compress better and are slower. On JSON, level 1 is 1.2"
        " to 1.5 times as fast as the default of 3 and produces 3 to 8 % fewer bytes.",
    )
    key_serializer: AnySerializer | None = optional(
        SerializerKind(), "Converts keys to bytes. None: keys are bytes."
    )
    value_serializer: AnySerializer | None = optional(
        SerializerKind(), "Converts values to bytes. None: values are bytes."
    )
    partitioner: Partitioner | None = optional(
        PartitionerKind(),
        "Chooses the partition. None: Kafka's default, murmur2 of the key, and sticky partitions for"
        " records without a key.",
    )
    partitioner_ignore_keys: bool = flag(
        False, "Treats all records as records without a key. Needs the default `partitioner`."
    )
    partitioner_adaptive_partitioning_enable: bool = flag(
        True, "Sends fewer records without a key to partitions with more unacknowledged records."
    )
    partitioner_availability_timeout_ms: int = long_ms(
        0,
        "Excludes a broker from keyless partitioning when batches have waited for this broker for this time and other"
        " brokers are available. 0 disables the check.",
    )
    partitioner_rack_aware: bool = flag(
        False,
        "Sends records without a key to partitions with a leader in `client_rack` (KIP-1123), or to all"
        " partitions while the rack has no leader. Saves traffic between zones if producers and leaders are"
        " spread evenly.",
    )
    interceptors: "tuple[AnyInterceptor, ...]" = option(
        (), InterceptorsKind(), "Objects that are called for every record, in the given order."
    )
    enable_metrics_push: bool = flag(
        True, "Pushes metrics to the cluster if the cluster requests them (KIP-714)."
    )
    retry_backoff_ms: int = long_ms(
        100,
        "Initial delay before a retry. Doubles with each consecutive failure, up to `retry_backoff_max_ms`.",
    )
    retry_backoff_max_ms: int = long_ms(
        1_000, "Upper bound of the exponential backoff that starts at `retry_backoff_ms`."
    )
    reconnect_backoff_ms: int = long_ms(
        50,
        "Initial delay before a reconnection attempt. Doubles with each consecutive failure, up to"
        " `reconnect_backoff_max_ms`.",
    )
    reconnect_backoff_max_ms: int = long_ms(
        1_000,
        "Upper bound of the exponential backoff that starts at `reconnect_backoff_ms`. Defaults to"
        " `reconnect_backoff_ms` if only that option is set, as in the Java client.",
    )
    start_wait: bool = flag(
        True,
        "If True, `start()` and `async with` wait for the first metadata response. If False, both calls return"
        " immediately and the producer connects in the background.",
    )
    bootstrap_timeout_ms: int = long_ms(
        0,
        "Time limit of `start()`, which retries failed connections with the reconnect backoff. 0: try each"
        " bootstrap address once.",
    )
    socket_connection_setup_timeout_ms: int = long_ms(
        10_000,
        "Initial time limit of a connection attempt. Doubles with each consecutive failure, up to"
        " `socket_connection_setup_timeout_max_ms`.",
        low=1,
    )
    socket_connection_setup_timeout_max_ms: int = long_ms(
        30_000, "Upper bound of the time limit that starts at `socket_connection_setup_timeout_ms`.", low=1
    )
    dial: DialHook | None = optional(
        DialKind(),
        "Replaces name lookup and TCP connect, for proxies and address translation. TLS and the login use"
        " this connection and the broker's own host name. None: direct connections.",
    )
    connections_max_idle_ms: int = long_ms(
        540_000, "Closes a connection after this time without use. -1 or 0: never.", low=-1
    )
    send_buffer_bytes: int = option(
        -1,
        Integer(-1, unit="bytes"),
        "SO_SNDBUF of the sockets. -1 (default) keeps the operating system's automatic size. The Java"
        " client's default is 131072.",
    )
    receive_buffer_bytes: int = option(
        32_768,
        Integer(-1, unit="bytes"),
        "SO_RCVBUF of the sockets. -1 keeps the operating system's default.",
    )
    metadata_max_age_ms: int = long_ms(
        300_000, "Maximum age of metadata; older metadata is requested again, even without an error."
    )
    metadata_max_idle_ms: int = long_ms(
        300_000, "Drops a topic's metadata after this time without a send.", low=5_000
    )
    metadata_recovery_strategy: Literal["none", "rebootstrap"] = option(
        "rebootstrap",
        Choice(("none", "rebootstrap")),
        "`rebootstrap` (default) restarts from `bootstrap_servers` when no known broker responds. `none`"
        " never restarts.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = long_ms(
        300_000, "Time without metadata after which the producer restarts from `bootstrap_servers`."
    )
    metadata_cluster_check_enable: bool = flag(
        True,
        "Compares each broker's cluster id with the first metadata, and restarts from `bootstrap_servers`"
        " if the ids differ (KIP-1242). No effect with `metadata_recovery_strategy=none`.",
    )
    allow_auto_create_topics: bool = flag(
        True,
        "Lets brokers with `auto.create.topics.enable` create an unknown topic at its first send. False:"
        " the send fails with UnknownTopicOrPartition after two or three metadata responses.",
    )
    transactional_id: str | None = optional(
        TransactionalId(),
        "Enables transactions. Only one running producer may use an id; a newer producer fences the older producer.",
    )
    transaction_timeout_ms: int = int_ms(
        60_000, "Time limit of a transaction; the coordinator then aborts the transaction.", low=1
    )
    transaction_two_phase_commit_enable: bool = flag(
        False,
        "Keeps transactions open without a time limit until a process ends them (KIP-939). The brokers must"
        " allow two-phase commits.",
    )


_INHERITED = fields(SecurityOptions)
OPTIONS: tuple[Field[Any], ...] = (*fields(Options)[len(_INHERITED) :], *_INHERITED)
"""All options. Security options are last in every list."""
KINDS: Mapping[str, Kind] = {each.name: each.metadata["kind"] for each in OPTIONS}
DEFAULTS: Mapping[str, object] = {each.name: each.default for each in OPTIONS}
