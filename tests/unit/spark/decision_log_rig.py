"""A log of decisions as on a broker, and a reader of it."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.records.compression import Codec
from aioproducer._core.records.decode import DecodedBatch, DecodedRecord
from aioproducer.spark.decision_records import DecisionView, Entry

PREFIX = "orders"


class Log:
    """Batches as a broker has them."""

    def __init__(self) -> None:
        self.batches: list[DecodedBatch] = []

    def write(self, producer_id: int, *entries: Entry, transactional: bool = True) -> None:
        self._append(producer_id, entries, control=False, transactional=transactional)

    def end(self, producer_id: int, key: bytes) -> None:
        self._append(producer_id, [Entry(key, b"\0\0\0\0\0\0")], control=True, transactional=True)

    def _append(
        self, producer_id: int, entries: Sequence[Entry], *, control: bool, transactional: bool
    ) -> None:
        start = self.batches[-1].last_offset + 1 if self.batches else 0
        records = [
            DecodedRecord(start + index, 0, key, value, ()) for index, (key, value) in enumerate(entries)
        ]
        self.batches.append(
            DecodedBatch(
                base_offset=start,
                leader_epoch=0,
                attributes=0,
                codec=Codec.NONE,
                timestamp_type_log_append=False,
                transactional=transactional,
                control=control,
                base_timestamp=0,
                max_timestamp=0,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                last_offset=start + len(records) - 1,
                records=records,
            )
        )


def read(log: Log, prefix: str = PREFIX) -> DecisionView:
    view = DecisionView(prefix)
    for each in log.batches:
        view.take(each)
    return view
