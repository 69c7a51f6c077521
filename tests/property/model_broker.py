"""Brokers without bytes: logs, and the producer states of partitions (KIP-98, KIP-360)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from aioproducer._core.idempotence import BatchSequence, add_to_sequence
from aioproducer._core.protocol.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from aioproducer.errors import (
    BrokerError,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    MessageTooLarge,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    broker_error,
)

REMEMBERED_BATCHES = 3
"""Of each producer, in each partition: as many as may be in flight here, as the five of real brokers are at most."""


class Refusal(Exception):
    """Error response in place of an append."""

    def __init__(self, kind: type[BrokerError]) -> None:
        super().__init__(kind.__name__)
        self.kind = kind


class Written(NamedTuple):
    """A batch as it is in a request."""

    partition: int
    sequence: BatchSequence | None
    values: tuple[bytes, ...]
    first_and_alone: bool
    """Its first attempt, and nothing else of its partition held a sequence when it got its own."""


class Remembered(NamedTuple):
    base_sequence: int
    records: int
    offset: int


@dataclass
class ProducerState:
    epoch: int
    recent: deque[Remembered] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))

    def offset_of(self, sequence: BatchSequence, count: int) -> int | None:
        """Return where a batch like this one is, if it is among the last ones of the epoch."""
        same = (sequence.base_sequence, count) if sequence.identity.epoch == self.epoch else None
        return next((offset for base, size, offset in self.recent if (base, size) == same), None)

    def expected(self, epoch: int) -> int:
        """Return the sequence that the next batch has to have."""
        base, count, _ = self.recent[-1]
        return 0 if epoch > self.epoch else add_to_sequence(base, count)


class ModelPartition:
    """One partition, of which every leader has all records."""

    def __init__(self, max_records: int) -> None:
        self.log: list[bytes] = []
        self.max_records = max_records
        """How many a batch may have: stands for max.message.bytes."""
        self._producers: dict[int, ProducerState] = {}
        self._value_of: dict[BatchSequence, bytes] = {}

    def append(self, written: Written) -> tuple[int, bool]:
        """Append *written*; return its base offset, and whether it was there already.

        Raises: Refusal; and AssertionError for what no broker should ever see of an idempotent producer.
        """
        sequence, count = written.sequence, len(written.values)
        if count > self.max_records:
            raise Refusal(MessageTooLarge)
        if sequence is None:
            return self._store(written), False
        self._check_that_no_sequence_is_used_twice(sequence, written.values)
        producer_id, epoch = sequence.identity
        state = self._producers.get(producer_id)
        if state is not None:
            known = state.offset_of(sequence, count)
            if known is not None:
                return known, True
            if epoch < state.epoch:
                raise Refusal(InvalidProducerEpoch)
            if sequence.base_sequence != state.expected(epoch):
                assert not written.first_and_alone, f"{written} leaves a gap that nothing accounts for"
                raise Refusal(OutOfOrderSequenceNumber)
        # A producer that is not known may begin with any sequence: its records may have been deleted.
        if state is None or state.epoch != epoch:
            state = self._producers[producer_id] = ProducerState(epoch)
        offset = self._store(written)
        state.recent.append(Remembered(sequence.base_sequence, count, offset))
        return offset, False

    def restart(self) -> None:
        """Remember the last batch of each producer only, as a broker that reads its snapshot."""
        for state in self._producers.values():
            last = state.recent[-1]
            state.recent.clear()
            state.recent.append(last)

    def lacks_what_is_before(self, sequence: BatchSequence) -> bool:
        """True if *sequence*, which the log lacks, is not the next one of its identity."""
        producer_id, epoch = sequence.identity
        state = self._producers.get(producer_id)
        return state is not None and sequence.base_sequence != state.expected(epoch)

    def has_seen_later(self, sequence: BatchSequence) -> bool:
        """True if a batch was written with a later producer id than that of *sequence*."""
        return any(producer_id > sequence.identity.producer_id for producer_id in self._producers)

    def _store(self, written: Written) -> int:
        self.log.extend(written.values)
        return len(self.log) - len(written.values)

    def _check_that_no_sequence_is_used_twice(self, sequence: BatchSequence, values: Iterable[bytes]) -> None:
        for index, value in enumerate(values):
            known = self._value_of.setdefault(sequence.after(index), value)
            assert known == value, f"{sequence.after(index)} was {known!r} and is now {value!r}"


class Fault(NamedTuple):
    """Error of a batch, whether the broker appends it first, and the records named in the error."""

    code: int = 0
    appends: bool = True
    blames: frozenset[int] = frozenset()

    @property
    def unsure(self) -> bool:
        """Whether its code leaves open if the batch is in the log."""
        return bool(self.code) and not broker_error(self.code).definitely_refused


HONEST = Fault()
FORGOTTEN = Fault(DuplicateSequenceNumber.code)
"""It has the batch already, and answers so instead of looking its offset up."""


class ModelCluster:
    """The brokers' partitions and leaders, and requests that may arrive after their connection was lost."""

    def __init__(self, max_records: Sequence[int], leader: int) -> None:
        self.partitions = [ModelPartition(limit) for limit in max_records]
        self.leaders = [leader] * len(max_records)
        self.strays: list[Written] = []

    def process(self, node_id: int, written: Written, fault: Fault = HONEST) -> PartitionProduceResponse:
        """Process *written* on *node_id* with *fault*; return the response."""
        index = written.partition
        if self.leaders[index] != node_id:
            return PartitionProduceResponse(index=index, error_code=NotLeaderOrFollower.code, base_offset=-1)
        if not fault.appends:
            blamed = [
                BatchIndexAndErrorMessage(batch_index=each, batch_index_error_message="no")
                for each in fault.blames
            ]
            return PartitionProduceResponse(
                index=index, error_code=fault.code, base_offset=-1, record_errors=blamed
            )
        try:
            offset, known = self.partitions[index].append(written)
        except Refusal as refusal:
            return PartitionProduceResponse(index=index, error_code=refusal.kind.code, base_offset=-1)
        code = fault.code if fault != FORGOTTEN or known else 0
        return PartitionProduceResponse(index=index, error_code=code, base_offset=-1 if code else offset)

    def stray_arrives(self, index: int) -> None:
        """Let a request of a lost connection arrive late; its response is dropped.

        A later epoch fences it off, a later producer id does not; but nothing is on its way for as long
        as 32,768 epochs take.
        """
        written = self.strays.pop(index)
        partition = self.partitions[written.partition]
        if written.sequence is not None and not partition.has_seen_later(written.sequence):
            with suppress(Refusal):
                partition.append(written._replace(first_and_alone=False))
