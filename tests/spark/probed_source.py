"""The sink with a probe: the format "probed", for tests that kill a process at a point.

Its option `probe` is the directory of the probe.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from aioproducer._core.transactions.administration import Administration
from aioproducer._core.transactions.transaction_requests import Ending, TransactionRequests
from aioproducer._transactional import Transaction
from aioproducer.producer import Producer
from aioproducer.spark import AioProducerSource
from aioproducer.spark.decision_protocol import End
from aioproducer.spark.decision_records import TOPIC, Share
from aioproducer.spark.kafka_port import KafkaPort
from aioproducer.spark.task import Task
from tests.spark.features import HAS_STREAM_SINK
from tests.spark.probe import VARIABLE, at

if HAS_STREAM_SINK or TYPE_CHECKING:
    from aioproducer.spark.writer import StreamWriter
else:
    StreamWriter = object


class ProbedSource(AioProducerSource):
    """The sink itself, which reports calls of Spark and requests to Kafka to the probe."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._directory = options["probe"]
        super().__init__({name: value for name, value in options.items() if name.lower() != "probe"})

    @classmethod
    def name(cls) -> str:
        return "probed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark calls it so
        super().streamWriter(schema, overwrite)
        return ProbedStreamWriter(self._task(schema), self._directory)


class ProbedStreamWriter(StreamWriter):
    """Of a stream."""

    def __init__(self, task: Task, directory: str) -> None:
        super().__init__(task)
        self._directory = directory

    def __getstate__(self) -> dict[str, object]:
        probe(self._directory)
        planned = super().__getstate__()
        at("planned")
        return {**planned, "_directory": self._directory}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        probe(self._directory)
        report = super().write(amid(iterator))
        at("task-flushed")
        return report

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803 - Spark's name
        probe(self._directory)
        at("commit-called")
        super().commit(messages, batchId)
        at("commit-done")


def amid(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the rows on, with a point behind the first of them."""
    for batch in batches:
        yield batch.slice(0, 100)
        at("task-amid-rows")
        yield batch.slice(100)


def probe(directory: str) -> None:
    """Let this process meet points, of the probe in *directory* from now on."""
    os.environ[VARIABLE] = directory
    _patch()


@functools.cache
def _patch() -> None:
    _before(Producer, "_start", "before-init")
    _before(Producer, "_start", "task-before-init", in_task=True)
    _before(Transaction, "prepare", "task-before-flush")
    _before(Producer, "commit_transaction", "decision-written")
    _after(Producer, "commit_transaction", "decision-made")
    _on_commit_written("decision-sent")
    _on_its_way(Administration, "_end", "commit-sent")
    send, commit = Producer.send, KafkaPort.commit

    async def probed_send(self: Producer, topic: str, *arguments: Any, **options: Any) -> Any:
        if topic == TOPIC:
            _at(self, "decision-next")
        return await send(self, topic, *arguments, **options)

    async def commit_in_two(self: KafkaPort, shares: Sequence[Share]) -> Mapping[Share, End]:
        first = await commit(self, shares[:1])
        at("between-commits")
        rest = await commit(self, shares[1:])
        at("before-done")
        return {**first, **rest}

    Producer.send = probed_send  # type: ignore[method-assign]
    KafkaPort.commit = commit_in_two  # type: ignore[method-assign]


def _at(owner: object, point: str) -> None:
    """Meet *point*; of the record of a prefix's first use (`PREFIX.b`), the point `first-use-…` in place of `decision-…`."""
    name = owner.config.transactional_id if isinstance(owner, Producer) else getattr(owner, "_id", None)
    at(point.replace("decision", "first-use") if (name or "").endswith(".b") else point)


def _before(owner: type, name: str, point: str, *, in_task: bool = False) -> None:
    method: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def probed(*arguments: Any, **options: Any) -> Any:
        if not in_task or TaskContext.get() is not None:
            _at(arguments[0], point)
        return await method(*arguments, **options)

    setattr(owner, name, probed)


def _on_commit_written(point: str) -> None:
    """Meet *point* after a producer has written the EndTxn of a commit, before the response."""
    end = TransactionRequests.end

    async def probed(self: TransactionRequests, ending: Ending) -> Any:
        note = ending.written

        def written() -> None:
            note()
            if ending.commits:
                _at(self, point)

        ending.written = written  # type: ignore[method-assign]
        return await end(self, ending)

    TransactionRequests.end = probed  # type: ignore[method-assign]


def _on_its_way(owner: type, name: str, point: str) -> None:
    """Have a point where a request to commit is written, and not answered."""
    method: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def probed(*arguments: Any, commit: bool, on_written: Callable[[], None], **options: Any) -> Any:
        def written() -> None:
            on_written()
            if commit:
                _at(arguments[0], point)

        return await method(*arguments, commit=commit, on_written=written, **options)

    setattr(owner, name, probed)


def _after(owner: type, name: str, point: str) -> None:
    method: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def probed(*arguments: Any, **options: Any) -> Any:
        result = await method(*arguments, **options)
        _at(arguments[0], point)
        return result

    setattr(owner, name, probed)
