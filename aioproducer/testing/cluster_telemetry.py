"""The part of a Cluster that is about the metrics of its clients (KIP-714)."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer.testing.state import ClusterState
from aioproducer.testing.telemetry_receiver import MetricsPushed, MetricsSubscription, codecs


class TelemetryControls:
    """What tests ask clients to push, and look at."""

    _state: ClusterState

    def subscribe_metrics(
        self,
        *prefixes: str,
        push_interval_s: float = 300.0,
        delta_temporality: bool = True,
        compression_types: Sequence[str] = ("zstd", "lz4", "gzip", "snappy"),
        max_bytes: int = 1_048_576,
    ) -> None:
        """Ask clients for the metrics whose names begin with one of *prefixes*; "*" is all, nothing is none.

        Before the first call brokers do not offer telemetry, so clients hear of it with their next connection. Clients
        that push already are told that the subscription has changed.

        Raises: ValueError for an unknown codec.
        """
        self._state.telemetry.subscribe(
            MetricsSubscription(
                prefixes, push_interval_s, delta_temporality, codecs(compression_types), max_bytes
            )
        )

    def pushed_metrics(self) -> list[MetricsPushed]:
        """Return what clients have pushed, in order."""
        return list(self._state.telemetry.pushed)
