"""Exposition of `producer.metrics()`: the table of all metrics with their meaning, and the exposed producers.

Kafka's name is the key with `-` for `_`, unless the table gives another name or None. docs/metrics.md shows the table.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakSet, WeakValueDictionary

from aioproducer import Producer, State
from aioproducer._core.steps import Log
from aioproducer.contrib.threads import ThreadedProducer
from aioproducer.errors import TimeoutReason

Part = Literal["producer", "topics", "nodes"]
PARTS: Final[dict[Part, tuple[str, str]]] = {
    "producer": ("kafka.producer.", ""),
    "topics": ("kafka.producer.topic.", "topic"),
    "nodes": ("kafka.producer.node.", "node"),
}
"""Beginning of the names, and the label beside `client_id`, of the metrics of each part."""


class Metric(NamedTuple):
    """Description of one metric."""

    meaning: str
    unit: str = ""
    kafka: str | None = ""
    """Kafka's name; "" if equal to the key, None if Kafka lacks the metric."""


def _pair(name: str, what: str, unit: str, *, kafka: str | None = "") -> dict[str, Metric]:
    return {
        f"{name}_total": Metric(f"{what}, since the start", unit, kafka),
        f"{name}_rate": Metric(f"{what}, per second", f"{unit}/s", kafka),
    }


def _spread(name: str, what: str, unit: str, *, kafka: str | None = "") -> dict[str, Metric]:
    return {
        f"{name}_avg": Metric(f"{what}, average", unit, kafka),
        f"{name}_max": Metric(f"{what}, maximum", unit, kafka),
    }


_RECORDS: Final = {
    **_pair("record_send", "records written to brokers, including retries", "records"),
    **_pair("record_retry", "records scheduled for a retry", "records"),
    **_pair("record_error", "records that failed", "records"),
}
_TIMEOUTS: Final = {
    f"record_timeout_{reason}_total": Metric(
        f"records that failed with DeliveryTimeout, reason `{reason}`, since the start", "records", None
    )
    for reason in TimeoutReason
}
_OUTCOMES: Final = {
    "records_delivered": Metric("records acknowledged since the start", "records", None),
    "batches_delivered": Metric("batches acknowledged since the start", "batches", None),
    "bytes_delivered": Metric(
        "bytes of acknowledged batches, after compression, since the start", "bytes", None
    ),
    "bytes_before_compression": Metric(
        "bytes of acknowledged batches before compression, an upper bound", "bytes", None
    ),
}
_TRAFFIC: Final = {
    "requests_in_flight": Metric("requests in flight, except those of connection set-up", "requests"),
    **_pair("request", "requests of any kind", "requests"),
    **_pair("response", "responses of any kind", "responses"),
    **_pair("outgoing_byte", "bytes written to sockets", "bytes"),
    **_pair("incoming_byte", "bytes read from sockets", "bytes"),
    **_spread("request_latency", "time from a Produce request to its response", "ms"),
}

METRICS: Final[dict[Part, dict[str, Metric]]] = {
    "producer": {
        **_RECORDS,
        **_TIMEOUTS,
        **_pair("byte", "bytes of batches written, encoded and compressed", "bytes", kafka=None),
        "records_per_request_avg": Metric("records per Produce request, average", "records"),
        "record_size_avg": Metric(
            "size of a record before compression, including its share of the batch header", "bytes"
        ),
        **_spread("record_queue_time", "time from a batch's first record to its Produce request", "ms"),
        **_spread(
            "record_latency", "time from a batch's first record to its acknowledgement", "ms", kafka=None
        ),
        **_spread("batch_size", "size of a batch after compression", "bytes"),
        **_pair("batch_split", "batches split because they were too large", "batches"),
        "compression_rate_avg": Metric(
            "size of batches after compression, relative to their size before compression"
        ),
        **_spread("produce_throttle_time", "throttle time in a response", "ms"),
        **_TRAFFIC,
        "connection_count": Metric("open connections", "connections"),
        **_pair("connection_creation", "connections opened", "connections"),
        **_pair("connection_close", "connections closed by either side", "connections"),
        "buffer_total_bytes": Metric("memory limit, the option buffer_memory", "bytes"),
        "buffer_available_bytes": Metric("free part of buffer_memory", "bytes"),
        **_pair("buffer_exhausted", "records refused with BufferFull or BufferTimeout", "records"),
        "bufferpool_wait_time_ns_total": Metric("total time that calls have waited for memory", "ns"),
        "calls_waiting": Metric(
            "calls waiting for metadata, serializers, memory or earlier calls", "calls", "waiting-threads"
        ),
        "flush_time_ns_total": Metric("total time of flush() calls", "ns"),
        "txn_init_time_ns_total": Metric(
            "total time that start() has waited for the transactional id; 0 without transactions", "ns"
        ),
        "txn_begin_time_ns_total": Metric(
            "total time of begin_transaction() calls; 0 without transactions", "ns"
        ),
        "txn_send_offsets_time_ns_total": Metric(
            "total time of send_offsets_to_transaction() calls; 0 without transactions", "ns"
        ),
        "txn_commit_time_ns_total": Metric("total time of commits; 0 without transactions", "ns"),
        "txn_abort_time_ns_total": Metric("total time of aborts; 0 without transactions", "ns"),
        "metadata_age": Metric("time since the last full metadata update", "s"),
        "batches_unfinished": Metric("batches without an outcome, queued or in flight", "batches", None),
        **_OUTCOMES,
    },
    "topics": {
        **_RECORDS,
        **_pair("byte", "bytes of batches written, encoded and compressed", "bytes"),
        "compression_rate": Metric(
            "size of batches after compression, relative to their size before compression"
        ),
        **_OUTCOMES,
    },
    "nodes": {
        "address": Metric("host and port of the broker", kafka=None),
        "connected": Metric("True if the broker is connected", kafka=None),
        **_TRAFFIC,
        "requests_in_flight": Metric(
            "requests in flight to the broker, except those of connection set-up", "requests", None
        ),
    },
}


def numbers(part: Part) -> dict[str, Metric]:
    """Return the metrics of *part* that are numbers or booleans."""
    return {key: metric for key, metric in METRICS[part].items() if key != "address"}


def is_counter(key: str) -> bool:
    """Return True if the metric *key* never decreases."""
    return key.endswith("_total") or key in _OUTCOMES


log: Final = Log(__name__)

Report = dict[str, dict[Any, Any]]
"""Type of the result of `metrics()`."""


def samples(
    part: Part, key: str, reports: Iterable[tuple[str, Report]]
) -> Iterator[tuple[dict[str, str], Any]]:
    """Yield labels and value of metric *key*, from each producer, topic or node that has a value."""
    label = PARTS[part][1]
    for client_id, report in reports:
        for name, values in report[part].items() if label else [("", report[part])]:
            value = values.get(key)
            if value is not None:  # an average without samples
                yield {"client_id": client_id} | ({label: str(name)} if label else {}), value


class Exposed:
    """Exposed producers by client_id, until they are closed or garbage-collected. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # scrapes run on another thread
        self._producers: WeakValueDictionary[str, Producer | ThreadedProducer] = WeakValueDictionary()
        self._failed: WeakSet[Producer | ThreadedProducer] = WeakSet()

    def add(self, producer: Producer | ThreadedProducer) -> None:
        """Add *producer*. A second call has no effect.

        Raises:
            TypeError: *producer* is of another type.
            ValueError: an open producer with the same client_id is exposed already.
        """
        if not isinstance(producer, Producer | ThreadedProducer):
            raise TypeError(f"a Producer or a ThreadedProducer can be exposed, not {producer!r}")
        client_id = producer.config.client_id
        with self._lock:
            other = self._producers.get(client_id, producer)
            if other is not producer and other.state is not State.CLOSED:
                raise ValueError(
                    f"another producer with the client_id {client_id!r} is exposed here, and not closed: "
                    "give this one a client_id of its own"
                )
            self._producers[client_id] = producer

    def reports(self) -> list[tuple[str, Report]]:
        """Return the client_id and the `metrics()` of each open producer.

        A producer whose `metrics()` fails is left out. The first failure is logged.
        """
        with self._lock:
            producers = list(self._producers.items())
        reports = []
        for client_id, each in producers:
            if each.state is State.CLOSED:
                continue
            try:
                reports.append((client_id, each.metrics()))
            except Exception as error:
                if each not in self._failed:
                    log.warning("metrics.failed client_id=%s", client_id, exc_info=error)
                self._failed.add(each)
        return reports
