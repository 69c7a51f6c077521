from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pyarrow as pa
import pytest

from aioproducer._core.worker_threads import WorkerThreads
from aioproducer.arrow.arrow_columns import Columns
from aioproducer.arrow.batches import PIECE_ROWS
from aioproducer.arrow.send import Source

COLUMNS = Columns(value="v", topic="orders")


def batch(*values: str, column: str = "v", **others: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({column: list(values), **others})


def reader(*batches: pa.RecordBatch) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))


async def pieces(data: Any) -> list[dict[str, list[Any]]]:
    source = await Source.open(data, COLUMNS)
    found = []
    while (piece := await source.piece()) is not None:
        found.append(piece.to_pydict())
    assert await source.piece() is None
    return found


@pytest.mark.parametrize(
    ("form", "blocks"),
    [
        (lambda one: one, False),
        (lambda one: pa.Table.from_batches([one]), False),
        (lambda one: [one], False),
        (lambda one: (one,), False),
        (lambda one: iter([one]), True),
        (reader, True),
    ],
)
async def test_blocking_sources_are_read_in_a_thread(
    form: Callable[[pa.RecordBatch], Any],
    blocks: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, asked = WorkerThreads.run, []

    async def noted(threads: WorkerThreads, *call: Any) -> Any:
        asked.append(call)
        return await run(threads, *call)

    monkeypatch.setattr(WorkerThreads, "run", noted)
    assert await pieces(form(batch("a", "b"))) == [{"v": ["a", "b"]}]
    assert bool(asked) is blocks


async def test_stream_is_read_in_another_thread() -> None:
    class Query:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            threads.append(threading.get_ident())
            return pa.Table.from_batches([batch("a")]).__arrow_c_stream__(requested_schema)

    threads: list[int] = []
    assert await pieces(Query()) == [{"v": ["a"]}]
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("form", [lambda one: one, lambda one: [one], reader])
async def test_columns_that_are_not_sent_are_dropped(form: Callable[[pa.RecordBatch], Any]) -> None:
    assert await pieces(form(batch("a", note=["not sent"]))) == [{"v": ["a"]}]


async def test_table_of_small_chunks_is_cut_by_rows() -> None:
    rows = [str(number) for number in range(PIECE_ROWS + 3)]
    chunks = [batch(*rows[start : start + 10]) for start in range(0, len(rows), 10)]
    first, second = await pieces(pa.Table.from_batches(chunks))
    assert (first["v"], second["v"]) == (rows[:PIECE_ROWS], rows[PIECE_ROWS:])


async def test_schema_is_checked_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[pa.Schema] = []
    monkeypatch.setattr(Columns, "check", lambda _, schema: checked.append(schema))
    one, other = batch("a"), batch("b", note=["not sent"])
    await pieces([one, one, other, other, one])
    assert checked == [one.schema, other.schema, one.schema]


@pytest.mark.parametrize("form", [reader, lambda one: pa.Table.from_batches([one]), lambda one: one])
async def test_known_schema_is_checked_at_open(form: Callable[[pa.RecordBatch], Any]) -> None:
    with pytest.raises(ValueError, match="'v'"):
        await Source.open(form(batch("a", column="w")), COLUMNS)


async def test_cancelled_read_does_not_wait_for_the_thread() -> None:
    """By a scope of anyio's, as in most web frameworks, which would be shielded else."""
    reading, goes_on = threading.Event(), threading.Event()

    def blocking() -> Iterator[pa.RecordBatch]:
        reading.set()
        goes_on.wait()
        yield batch("a")

    async def read() -> None:
        with scope:
            await source.piece()

    source, scope = await Source.open(blocking(), COLUMNS), anyio.CancelScope()
    task = asyncio.get_running_loop().create_task(read())
    try:
        await asyncio.to_thread(reading.wait)
        scope.cancel()
        done, _ = await asyncio.wait([task], timeout=10)
        assert done
        assert scope.cancelled_caught
    finally:
        goes_on.set()
        await task


async def test_sources_that_block_do_not_wait_for_each_other() -> None:
    everyone_reads = threading.Barrier(8)

    def blocking() -> Iterator[pa.RecordBatch]:
        everyone_reads.wait(10)
        yield batch("a")

    assert await asyncio.gather(*(pieces(blocking()) for _ in range(8))) == [[{"v": ["a"]}]] * 8
