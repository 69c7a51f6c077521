"""Metrics of producers as observable instruments of OpenTelemetry.

    async with Producer("localhost:9092") as producer:
        expose(producer)

An instrument is named `kafka.producer.`, `kafka.producer.topic.` or `kafka.producer.node.`, and the key in `metrics()`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from aioproducer import Producer
from aioproducer._core.extras import needs
from aioproducer.contrib.exposition import PARTS, Exposed, Part, Report, is_counter, numbers, samples
from aioproducer.contrib.threads import ThreadedProducer

try:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
except ImportError as _missing:
    raise ImportError(needs("aioproducer.contrib.otel_metrics", "otel")) from _missing


class ProducerInstruments(Exposed):
    """Instruments of one meter provider, created once because instruments cannot be removed. Closed producers are dropped."""

    def __init__(self, meter_provider: MeterProvider) -> None:
        super().__init__()
        self._reports: list[tuple[str, Report]] = []
        self._observed: set[tuple[Part, str]] = set()
        meter = meter_provider.get_meter("aioproducer")
        for part, (prefix, _) in PARTS.items():
            for key, metric in numbers(part).items():
                create = meter.create_observable_counter if is_counter(key) else meter.create_observable_gauge
                create(
                    prefix + key,
                    [partial(self._observe, part, key)],
                    unit=metric.unit,
                    description=metric.meaning,
                )

    def _observe(self, part: Part, key: str, _: CallbackOptions) -> Iterable[Observation]:
        for attributes, value in samples(part, key, self._reports_for(part, key)):
            yield Observation(value if isinstance(value, float) else int(value), attributes)

    def _reports_for(self, part: Part, key: str) -> list[tuple[str, Report]]:
        """Return the reports of this collection, shared by all instruments: a collection calls each instrument once."""
        if not self._observed or (part, key) in self._observed:
            self._reports = self.reports()
            self._observed.clear()
        self._observed.add((part, key))
        return self._reports


_instruments: Final[WeakKeyDictionary[MeterProvider, ProducerInstruments]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


def expose(producer: Producer | ThreadedProducer, meter_provider: MeterProvider | None = None) -> None:
    """Expose the metrics of *producer* to *meter_provider* (default: the global provider) until the producer is closed.

    Raises:
        TypeError: *producer* or *meter_provider* is of another type.
        ValueError: an open producer with the same `client_id`, an attribute of all metrics, is exposed already.
    """
    provider = get_meter_provider() if meter_provider is None else meter_provider
    if not isinstance(provider, MeterProvider):
        raise TypeError(f"meter_provider: expected a MeterProvider of OpenTelemetry, not {provider!r}")
    with _lock:
        instruments = _instruments.get(provider)
        if instruments is None and provider is get_meter_provider():
            # OpenTelemetry's proxy, used until the global provider is set, has passed its instruments on to this provider.
            proxies = (known for known in _instruments if hasattr(known, "on_set_meter_provider"))
            instruments = _instruments.get(next(proxies, provider))
        if instruments is None:
            instruments = ProducerInstruments(provider)
        _instruments[provider] = instruments
        instruments.add(producer)
