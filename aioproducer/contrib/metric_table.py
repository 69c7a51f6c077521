"""Every metric of `producer.metrics()`, with what it means: what expositions tell beside the values.

Kafka's name is the key with `-` for `_`, unless another one, or none, is given. docs/metrics.md is this table, too.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from aioproducer.errors import TimeoutReason

Part = Literal["producer", "topics", "nodes"]


class Metric(NamedTuple):
    """What one key stands for."""

    meaning: str
    unit: str = ""
    kafka: str | None = ""
    """Kafka's name, if it is not the key; None if Kafka has no such metric there."""


def _pair(name: str, what: str, unit: str, *, kafka: str | None = "") -> dict[str, Metric]:
    return {
        f"{name}_total": Metric(f"{what}, since the start", unit, kafka),
        f"{name}_rate": Metric(f"{what}, per second", f"{unit}/s", kafka),
    }


_RECORDS: Final = {
    **_pair("record_send", "records written to brokers, resends included", "records"),
    **_pair("record_retry", "records to be sent again", "records"),
    **_pair("record_error", "records that failed for good", "records"),
}
_TIMEOUTS: Final = {
    f"record_timeout_{reason}_total": Metric(
        f"records that failed with DeliveryTimeout, reason `{reason}`, since the start", "records", None
    )
    for reason in TimeoutReason
}
_OUTCOMES: Final = {
    "records_delivered": Metric("records acknowledged since the start", "records", None),
    "batches_delivered": Metric("their batches", "batches", None),
    "bytes_delivered": Metric("their bytes, as they were sent", "bytes", None),
    "bytes_before_compression": Metric("their bytes before compression, an upper bound", "bytes", None),
}
_TRAFFIC: Final = {
    "requests_in_flight": Metric(
        "requests that wait for their answer, those of connecting apart", "requests"
    ),
    **_pair("request", "requests of any kind", "requests"),
    **_pair("response", "answers", "responses"),
    **_pair("outgoing_byte", "bytes written to sockets", "bytes"),
    **_pair("incoming_byte", "bytes read from sockets", "bytes"),
    "request_latency_avg": Metric("from produce request to answer, on average", "ms"),
    "request_latency_max": Metric("from produce request to answer, at most", "ms"),
}

METRICS: Final[dict[Part, dict[str, Metric]]] = {
    "producer": {
        **_RECORDS,
        **_TIMEOUTS,
        **_pair("byte", "bytes of batches written, encoded and compressed", "bytes", kafka=None),
        "records_per_request_avg": Metric("records per produce request, on average", "records"),
        "record_size_avg": Metric(
            "size of a record before compression, its share of the batch included", "bytes"
        ),
        "record_queue_time_avg": Metric("from a batch's first record to its being written, on average", "ms"),
        "record_queue_time_max": Metric("from a batch's first record to its being written, at most", "ms"),
        "record_latency_avg": Metric(
            "from a batch's first record to its acknowledgement, on average", "ms", None
        ),
        "record_latency_max": Metric(
            "from a batch's first record to its acknowledgement, at most", "ms", None
        ),
        "batch_size_avg": Metric("size of a batch as it is sent, on average", "bytes"),
        "batch_size_max": Metric("size of a batch as it is sent, at most", "bytes"),
        **_pair("batch_split", "batches that were too large and were split", "batches"),
        "compression_rate_avg": Metric("size of batches sent, relative to their size before compression"),
        "produce_throttle_time_avg": Metric("pause that brokers asked for in an answer, on average", "ms"),
        "produce_throttle_time_max": Metric("pause that brokers asked for in an answer, at most", "ms"),
        **_TRAFFIC,
        "connection_count": Metric("connections open now", "connections"),
        **_pair("connection_creation", "connections made", "connections"),
        **_pair("connection_close", "connections closed by either side", "connections"),
        "buffer_total_bytes": Metric("buffer_memory", "bytes"),
        "buffer_available_bytes": Metric("how much of it is free", "bytes"),
        **_pair("buffer_exhausted", "records refused with BufferFull or BufferTimeout", "records"),
        "bufferpool_wait_time_ns_total": Metric("how long calls have waited for it, all together", "ns"),
        "calls_waiting": Metric(
            "calls that wait now, for metadata, serializers, memory or their turn", "calls", "waiting-threads"
        ),
        "flush_time_ns_total": Metric("how long calls of flush() have taken, all together", "ns"),
        "txn_init_time_ns_total": Metric(
            "how long start() has waited for the transactional id; 0 without one, as the next four", "ns"
        ),
        "txn_begin_time_ns_total": Metric("how long begin_transaction() has taken, all together", "ns"),
        "txn_send_offsets_time_ns_total": Metric(
            "how long send_offsets_to_transaction() has taken, all together", "ns"
        ),
        "txn_commit_time_ns_total": Metric("how long commits have taken, all together", "ns"),
        "txn_abort_time_ns_total": Metric("how long aborts have taken, all together", "ns"),
        "metadata_age": Metric("time since all metadata was last fetched", "s"),
        "batches_unfinished": Metric("batches without an outcome now, queued or in flight", "batches", None),
        **_OUTCOMES,
    },
    "topics": {
        **_RECORDS,
        **_pair("byte", "bytes of batches written, encoded and compressed", "bytes"),
        "compression_rate": Metric("size of batches sent, relative to their size before compression"),
        **_OUTCOMES,
    },
    "nodes": {
        "address": Metric("where the broker listens", kafka=None),
        "connected": Metric("whether there is a connection now", kafka=None),
        **_TRAFFIC,
        "requests_in_flight": Metric(
            "requests that wait for its answer, those of connecting apart", "requests", None
        ),
    },
}

_TEXTS: Final = {"address"}
"""What is no number."""


def numbers(part: Part) -> dict[str, Metric]:
    """Return those of *part* that are numbers, or true or false."""
    return {key: metric for key, metric in METRICS[part].items() if key not in _TEXTS}


def is_counter(key: str) -> bool:
    """Whether the metric *key* only ever grows."""
    return key.endswith("_total") or key in _OUTCOMES
