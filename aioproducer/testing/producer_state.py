"""What a partition remembers of each idempotent producer, and the checks it makes with it.

Source: Kafka's ProducerStateEntry and ProducerAppendInfo; KIP-98, and KIP-360 for unknown producers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from aioproducer.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber
from aioproducer.testing.refusal import Refused

REMEMBERED_BATCHES = 5
"""Why no more than five requests of a producer may be in flight on a connection."""

MAX_SEQUENCE = 0x7FFFFFFF


class Stamp(NamedTuple):
    """What an idempotent producer wrote on a batch, and how many sequences the batch takes."""

    producer_id: int
    epoch: int
    first_sequence: int
    records: int

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; after the largest int32 comes 0."""
        return (self.first_sequence + self.records - 1) & MAX_SEQUENCE


@dataclass(slots=True)
class _Producer:
    epoch: int
    recent: deque[tuple[Stamp, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


class ProducerStates:
    """The producers that have written to one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def restart(self) -> None:
        """Know what a broker knows that was started again: its snapshot has the last batch of each producer only."""
        for producer in self._producers.values():
            while len(producer.recent) > 1:
                _ = producer.recent.popleft()

    def offset_of_duplicate(self, stamp: Stamp) -> int | None:
        """Return where a batch with just this stamp is, if it is among the producer's last five."""
        producer = self._producers.get(stamp.producer_id)
        if producer is None:
            return None
        return next((offset for known, offset in producer.recent if known == stamp), None)

    def check(self, stamp: Stamp) -> None:
        """Raise Refused unless the batch is the next one of its producer.

        A producer that is not known may start at any sequence: its records may have been deleted (KIP-360).
        """
        producer = self._producers.get(stamp.producer_id)
        if producer is None:
            return
        if stamp.epoch < producer.epoch:
            raise Refused(
                InvalidProducerEpoch,
                f"producer {stamp.producer_id} has epoch {stamp.epoch}, {producer.epoch} was seen already",
            )
        if stamp.epoch > producer.epoch:
            expected = 0
        else:
            last, _ = producer.recent[-1]
            expected = (last.last_sequence + 1) & MAX_SEQUENCE
        if stamp.first_sequence != expected:
            raise Refused(
                OutOfOrderSequenceNumber,
                f"producer {stamp.producer_id} epoch {stamp.epoch} sent sequence {stamp.first_sequence} for {expected}",
            )

    def appended(self, stamp: Stamp, offset: int) -> None:
        """Remember a batch that was checked and is now in the log at *offset*."""
        producer = self._producers.get(stamp.producer_id)
        if producer is None or producer.epoch != stamp.epoch:
            producer = self._producers[stamp.producer_id] = _Producer(stamp.epoch)
        producer.recent.append((stamp, offset))
