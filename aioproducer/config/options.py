"""Every option: how it may be given, how it is kept, its default, and what it means."""

# ruff: noqa: I002 - as in security_options.py
from collections.abc import Mapping, Sequence
from dataclasses import Field, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from aioproducer._core.net.dial_hook import DialHook
from aioproducer._core.partitioning.partitioner import Partitioner, PartitionFunction
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
    TransactionalId,
    has_options,
    int_ms,
    long_ms,
    option,
)
from aioproducer.config.security_options import SecurityOptions, SecurityOptionsGiven
from aioproducer.config.servers import Servers
from aioproducer.config.user_code import DialKind, InterceptorsKind, PartitionerKind, SerializerKind
from aioproducer.serializers import AnySerializer

if TYPE_CHECKING:
    from aioproducer.interceptors import AnyInterceptor

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
    """What can be given to a producer besides `bootstrap_servers`; `ProducerConfig` says what each means."""

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
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
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
    """The compression levels of *codec*."""
    levels = LEVELS[codec]
    return Integer(levels[0], levels[-1], besides=besides)


@has_options
class Options(SecurityOptions):
    """Kafka's names with `_` for `.`, and the defaults of Kafka 4, in the one form that each value is kept in."""

    bootstrap_servers: tuple[str, ...] = field(
        metadata={
            "kind": Servers(),
            "meaning": "Brokers to ask for the rest of the cluster; the first that answers will do.",
        }
    )
    client_id: str = option(
        None, ClientId(), "The client's name in the brokers' logs, metrics and quotas. None: `aioproducer-N`."
    )
    client_rack: str | None = option(
        None,
        Rack(),
        "Rack (availability zone) of this client, as in `broker.rack` of the brokers. Used by `partitioner_rack_aware`.",
    )
    acks: Literal["all", 0, 1] = option(
        "all",
        Acks(),
        "Who must have a record before it counts as sent: all in-sync replicas, the leader, nobody.",
    )
    enable_idempotence: bool | None = option(
        None,
        Flag(optional=True),
        "No duplicates and no reordering through retries. None: on, unless `acks` or `retries` rule it out.",
    )
    max_in_flight_requests_per_connection: int = option(
        5, Integer(1), "How many produce requests may wait for their answer on one connection."
    )
    retries: int = option(
        INT32_MAX,
        Integer(0),
        "How often a batch is sent again. Better left alone: `delivery_timeout_ms` ends it too.",
    )
    delivery_timeout_ms: int = option(
        120_000, int_ms(1), "A record that is not acknowledged this long after the call fails."
    )
    request_timeout_ms: int = option(
        30_000,
        int_ms(1),
        "Time limit for a broker's response. The connection is then closed and its requests are retried. Throttle time"
        " (quotas) does not count.",
    )
    max_block_ms: int = option(
        60_000, long_ms(), "Maximum time a call may wait for metadata, async serializers and memory together."
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
        "A batch of this size waits for no more records, and takes none; where it is to be compressed, estimated from those"
        " before it. Not given: it takes those that come before it can be sent, up to `batch_max_size`. 0: one record each.",
    )
    batch_max_size: int = option(
        NotGiven(262_144),
        Integer(0, unit="bytes"),
        "A batch is full at this size, compressed if it is to be, and never above `max_request_size`. Not given while"
        " `batch_size` is: the same as that.",
    )
    linger_ms: float = option(
        NotGiven(5),
        Number(0, unit="ms"),
        "How long a batch that is not full waits for more records. Not given: not at all while its broker has nothing"
        " of ours in flight, else until it has nothing any more or the batch is half full, and at most this long.",
    )
    max_request_size: int = option(
        1_048_576, Integer(1, unit="bytes"), "The largest request, and the largest record before compression."
    )
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = option(
        "none",
        Choice(tuple(map(str, Codec)), absent="none"),
        "How batches are compressed.",
    )
    compression_gzip_level: int = option(
        -1,
        level(Codec.GZIP, besides=-1),
        "A higher level is smaller and slower. -1, the default: zlib's level 6. Levels 1 and 2 use isal if the extra"
        " `isal` is installed: on JSON at least 5 times as fast as -1, for 11 to 15 % more bytes.",
    )
    compression_lz4_level: int = option(
        9,
        level(Codec.LZ4),
        "The high-compression mode's level; 9, the default, is the fast mode, as in the JVM.",
    )
    compression_zstd_level: int = option(
        3,
        level(Codec.ZSTD),
        "A higher level is mostly smaller and slower. On JSON, level 1 beats the default of 3: 1.2 to 1.5 times as fast,"
        " for 3 to 8 % fewer bytes.",
    )
    key_serializer: AnySerializer | None = option(
        None, SerializerKind(), "Turns keys into bytes. None: keys are bytes already."
    )
    value_serializer: AnySerializer | None = option(
        None, SerializerKind(), "Turns values into bytes. None: values are bytes already."
    )
    partitioner: Partitioner | None = option(
        None,
        PartitionerKind(),
        "Chooses the partition. None: Kafka's way, by murmur2 of the key, or sticky without one.",
    )
    partitioner_ignore_keys: bool = option(
        False, Flag(), "Choose as if no record had a key; only without a `partitioner` of your own."
    )
    partitioner_adaptive_partitioning_enable: bool = option(
        True,
        Flag(),
        "Whether records without a key go less often to partitions where more waits for an acknowledgement.",
    )
    partitioner_availability_timeout_ms: int = option(
        0,
        long_ms(),
        "… and not at all to a broker that could take no request of ours for so long, while others could. 0: off.",
    )
    partitioner_rack_aware: bool = option(
        False,
        Flag(),
        "Send records without a key to partitions with a leader in `client_rack` (KIP-1123); to all partitions while no"
        " leader is there. Saves traffic between zones if producers and leaders are spread evenly.",
    )
    interceptors: "tuple[AnyInterceptor, ...]" = option(
        (), InterceptorsKind(), "Called around every record, in this order."
    )
    enable_metrics_push: bool = option(
        True,
        Flag(),
        "Whether metrics are pushed to the cluster, if it asks for some (KIP-714).",
    )
    retry_backoff_ms: int = option(
        100, long_ms(), "Wait before a failed request is tried again; doubles with each failure in a row …"
    )
    retry_backoff_max_ms: int = option(1_000, long_ms(), "… up to this.")
    reconnect_backoff_ms: int = option(
        50, long_ms(), "Wait before a broker is dialled again; doubles with each failure in a row …"
    )
    reconnect_backoff_max_ms: int = option(
        1_000,
        long_ms(),
        "… up to this. Left out while `reconnect_backoff_ms` is set: the same, as in the JVM.",
    )
    start_wait: bool = option(
        True,
        Flag(),
        "Wait in `start()` and `async with` for the first metadata response. False: return at once and connect in the"
        " background.",
    )
    bootstrap_timeout_ms: int = option(
        0,
        long_ms(),
        "Time limit of `start()`: failed connections are repeated until then, at the reconnect backoff. 0: try each"
        " bootstrap address once.",
    )
    socket_connection_setup_timeout_ms: int = option(
        10_000, long_ms(1), "How long connecting may take; doubles with each failure in a row …"
    )
    socket_connection_setup_timeout_max_ms: int = option(30_000, long_ms(1), "… up to this.")
    dial: DialHook | None = option(
        None,
        DialKind(),
        "Replaces name lookup and TCP connect, for proxies and address translation. TLS and the login use this connection"
        " and the broker's own host name. None: connect directly.",
    )
    connections_max_idle_ms: int = option(
        540_000, long_ms(-1), "Close a connection that was not used for this long. -1 or 0: never."
    )
    send_buffer_bytes: int = option(
        -1,
        Integer(-1, unit="bytes"),
        "SO_SNDBUF of the sockets. -1: as the operating system has it, which lets it grow. In the JVM: 131072.",
    )
    receive_buffer_bytes: int = option(
        32_768, Integer(-1, unit="bytes"), "SO_RCVBUF of the sockets. -1: as the operating system has it."
    )
    metadata_max_age_ms: int = option(
        300_000, long_ms(), "Ask for the cluster's state again after this long, even if nothing went wrong."
    )
    metadata_max_idle_ms: int = option(
        300_000, long_ms(5_000), "Forget a topic that nothing was sent to for this long."
    )
    metadata_recovery_strategy: Literal["none", "rebootstrap"] = option(
        "rebootstrap",
        Choice(("none", "rebootstrap")),
        "Whether to start over from `bootstrap_servers` when no known broker answers.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = option(
        300_000, long_ms(), "Start over when there was no metadata for this long."
    )
    metadata_cluster_check_enable: bool = option(
        True,
        Flag(),
        "Check each broker's cluster id against the first metadata, and restart from `bootstrap_servers` if the ids"
        " differ (KIP-1242). No effect with `metadata_recovery_strategy=none`.",
    )
    allow_auto_create_topics: bool = option(
        True,
        Flag(),
        "Let brokers with `auto.create.topics.enable` create an unknown topic when a record is sent to it. False: sending"
        " to an unknown topic fails with UnknownTopicOrPartition after two or three metadata responses.",
    )
    transactional_id: str | None = option(
        None,
        TransactionalId(),
        "The name of this producer's transactions, which one producer has at a time. None: no transactions.",
    )
    transaction_timeout_ms: int = option(
        60_000, int_ms(1), "The coordinator aborts a transaction that is open for longer than this."
    )
    transaction_two_phase_commit_enable: bool = option(
        False,
        Flag(),
        "Whether transactions stay open until somebody ends them, however long that takes (KIP-939). The brokers must"
        " allow it.",
    )


_INHERITED = fields(SecurityOptions)
OPTIONS: tuple[Field[Any], ...] = (*fields(Options)[len(_INHERITED) :], *_INHERITED)
"""All of them; those about security come last wherever they are listed."""
KINDS: Mapping[str, Kind] = {each.name: each.metadata["kind"] for each in OPTIONS}
DEFAULTS: Mapping[str, object] = {each.name: each.default for each in OPTIONS}
