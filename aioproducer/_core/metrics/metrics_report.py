"""A report of metrics from counters, under Kafka's names with `_` for `-`; docs/metrics.md says what each means.

Source: https://kafka.apache.org/documentation/#producer_monitoring
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from aioproducer._core.metrics.counters import Metrics, Recent

Values: TypeAlias = dict[str, Any]
"""Metrics by their names."""

MS: Final = 1_000

OF_TOPICS: Final = {
    "record_send": "records",
    "byte": "bytes",
    "record_retry": "retried_records",
    "record_error": "failed_records",
}
"""What there is a `…_total` and a `…_rate` of, and which number of a tally that is."""
OF_NODES: Final = {
    "request": "requests",
    "response": "responses",
    "outgoing_byte": "bytes_out",
    "incoming_byte": "bytes_in",
}
OF_TRANSACTIONS: Final = {
    "txn_init": "init_s",
    "txn_begin": "begin_s",
    "txn_send_offsets": "send_offsets_s",
    "txn_commit": "commit_s",
    "txn_abort": "abort_s",
}
"""What there is a `…_time_ns_total` of."""
OF_CONNECTIONS: Final = {"connection_creation": "opened", "connection_close": "closed"}
OUTCOMES: Final = {
    "records_delivered": "delivered_records",
    "batches_delivered": "delivered_batches",
    "bytes_delivered": "delivered_bytes",
    "bytes_before_compression": "delivered_uncompressed",
}
"""What Kafka has no names for: what it calls sent is counted again whenever it is sent again."""


class View:
    """What one or several tallies of a kind have counted, taken together."""

    def __init__(self, *recent: Recent) -> None:
        self._recent = recent

    def total(self, name: str) -> float:
        """Return the number *name* since the start."""
        return sum(recent.totals[name] for recent in self._recent)

    def rate(self, name: str) -> float:
        """Return by how much it grows per second, lately."""
        return sum((recent.numbers[name] / recent.span_s for recent in self._recent), start=0.0)

    def average(self, name: str, per: str, *, scale: float = 1) -> float | None:
        """Return, of lately, the number *name* per *per*; None if there was none of these."""
        count = self._grown(per)
        return self._grown(name) / count * scale if count else None

    def maximum(self, name: str, of: str, *, scale: float = 1) -> float | None:
        """Return, of lately, the maximum *name* of all *of*; None if there was none of these."""
        if not self._grown(of):
            return None
        return max(recent.numbers[name] for recent in self._recent) * scale

    def totals_and_rates(self, names: Mapping[str, str]) -> Values:
        """Return both of each of *names*."""
        totals = {f"{metric}_total": self.total(name) for metric, name in names.items()}
        return totals | {f"{metric}_rate": self.rate(name) for metric, name in names.items()}

    def _grown(self, name: str) -> float:
        return sum(recent.numbers[name] for recent in self._recent)


def report(metrics: Metrics, producer: Values, nodes: Mapping[int, Values]) -> dict[str, dict[Any, Any]]:
    """Return all metrics: what *metrics* has counted, beside what is known of the *producer* and its *nodes* now.

    Of nodes that are gone only the sums of all still tell.
    """
    now = metrics.clock()
    # Copied in one go, which tuple(….items()) is not: another thread may read while the producer's adds to them. And
    # each is read once: there may be thousands of topics.
    with metrics.lock:
        topics, rest_of_topics = metrics.topics.copy(), metrics.forgotten_topics.recent(now)
        nodes_now, rest_of_nodes = metrics.nodes.copy(), metrics.forgotten_nodes.recent(now)
    of_topics = {name: tally.recent(now) for name, tally in topics.items()}
    of_nodes = {node_id: tally.recent(now) for node_id, tally in nodes_now.items()}
    every_topic = View(*of_topics.values(), rest_of_topics)
    every_node = View(*of_nodes.values(), rest_of_nodes)
    timeouts = {f"record_timeout_{reason}_total": count for reason, count in metrics.timeouts.items()}
    return {
        "producer": _of_producer(every_topic, every_node, View(metrics.calls.recent(now)))
        | timeouts
        | producer,
        "topics": {name: _of_topic(View(recent)) for name, recent in of_topics.items()},
        "nodes": {
            node_id: values | _of_node(View(of_nodes[node_id]) if node_id in of_nodes else View())
            for node_id, values in nodes.items()
        },
    }


def _of_topic(topic: View) -> Values:
    return {
        **topic.totals_and_rates(OF_TOPICS),
        "compression_rate": topic.average("bytes", "uncompressed"),
        **{metric: topic.total(name) for metric, name in OUTCOMES.items()},
    }


def _of_node(node: View) -> Values:
    return {
        **node.totals_and_rates(OF_NODES),
        "request_latency_avg": node.average("latency_s", "answers", scale=MS),
        "request_latency_max": node.maximum("latency_s_max", "answers", scale=MS),
    }


def _of_producer(topics: View, nodes: View, calls: View) -> Values:
    values = {
        **topics.totals_and_rates(OF_TOPICS | {"batch_split": "splits"}),
        "batch_size_avg": topics.average("bytes", "batches"),
        "batch_size_max": topics.maximum("bytes_max", "batches"),
        "compression_rate_avg": topics.average("bytes", "uncompressed"),
        "record_size_avg": topics.average("uncompressed", "records"),
        "record_queue_time_avg": topics.average("queued_s", "batches", scale=MS),
        "record_queue_time_max": topics.maximum("queued_s_max", "batches", scale=MS),
        "record_latency_avg": topics.average("delivered_s", "delivered_batches", scale=MS),
        "record_latency_max": topics.maximum("delivered_s_max", "delivered_batches", scale=MS),
        "records_per_request_avg": topics.average("records", "requests"),
        "produce_throttle_time_avg": nodes.average("throttle_ms", "answers"),
        "produce_throttle_time_max": nodes.maximum("throttle_ms_max", "answers"),
        **_of_node(nodes),
        **nodes.totals_and_rates(OF_CONNECTIONS),
        "connection_count": nodes.total("opened") - nodes.total("closed"),
        **calls.totals_and_rates({"buffer_exhausted": "exhausted"}),
        "flush_time_ns_total": round(calls.total("flush_s") * 1e9),
        **{
            f"{metric}_time_ns_total": round(calls.total(name) * 1e9)
            for metric, name in OF_TRANSACTIONS.items()
        },
        **{metric: topics.total(name) for metric, name in OUTCOMES.items()},
    }
    values["record_error_total"] += calls.total("refused_records")
    values["record_error_rate"] += calls.rate("refused_records")
    return values
