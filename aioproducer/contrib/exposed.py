"""The producers that an exposition of metrics tells of: one of them may not spoil it for all others."""

from __future__ import annotations

import threading
from typing import Any, Final
from weakref import WeakSet, WeakValueDictionary

from aioproducer import Producer, State
from aioproducer._core.steps import Log
from aioproducer.contrib.threads import ThreadedProducer

log: Final = Log(__name__)

Report = dict[str, dict[Any, Any]]
"""What `metrics()` returns."""


class Exposed:
    """Producers, each by its client_id, until they are closed or nobody holds them. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # who scrapes is on a thread of its own
        self._producers: WeakValueDictionary[str, Producer | ThreadedProducer] = WeakValueDictionary()
        self._failed: WeakSet[Producer | ThreadedProducer] = WeakSet()

    def add(self, producer: Producer | ThreadedProducer) -> None:
        """Tell of *producer*, too; once more does nothing.

        Raises:
            TypeError: it is none.
            ValueError: another one with its client_id is not closed. Nobody could tell their numbers apart.
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
        """Return the client_id and the `metrics()` of each that is not closed.

        One whose `metrics()` fails is left out, and that is logged the first time.
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
