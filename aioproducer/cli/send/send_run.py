"""Sending of an input: concurrent `send_many` calls of blocks, settled in the order of the input.

The *prefix* is the input before the first record without an acknowledgement. A checkpoint records the size of the
prefix. The next run loses no record after the prefix, and repeats the acknowledged records after the prefix.
"""

from __future__ import annotations

import asyncio
from asyncio import Queue, Semaphore, Task
from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Final, NamedTuple

from aioproducer._core.intake.many import OrderedCalls
from aioproducer._topic_client import Client
from aioproducer.audit import stamp
from aioproducer.cli.reports import await_topic, failures_of
from aioproducer.cli.send.arguments import (
    SendArguments,
    SendOutcome,
    SendTransaction,
    TransactionOutcome,
    root_error,
)
from aioproducer.cli.send.decoding import Columns
from aioproducer.cli.send.input_source import Block, InputError, blocks
from aioproducer.cli.send.written_files import CheckpointError, DeadLetter, StoredPrefix, is_record_error
from aioproducer.errors import ProducerError, TransactionAborted, TransactionStateError
from aioproducer.producer import Producer

CALLS: Final = 4
"""Largest number of concurrent `send_many` calls. This number and `RECORDS_A_CALL` bound the memory."""
RECORDS_A_CALL: Final = 10_000
CALLS_A_SECOND: Final = 20
"""Number of calls per second under a rate limit; low rates send one record per call."""
SAVE_INTERVAL_S: Final = 1.0


class Call(NamedTuple):
    """Records of one `send_many` call."""

    block: Block
    columns: Columns
    failures: Task[Mapping[int, ProducerError]]
    """Errors of failed records by position."""


class Sending:
    """One run of `aioproducer send`."""

    def __init__(self, arguments: SendArguments, on_progress: Callable[[SendOutcome], None]) -> None:
        self.outcome: SendOutcome = SendOutcome(arguments)
        self._arguments = arguments
        self._on_progress = on_progress
        self._calls: Queue[Call | None] = Queue()
        self._ordered = OrderedCalls()
        self._free_calls = Semaphore(CALLS)
        self._running_calls: set[Task[Mapping[int, ProducerError]]] = set()
        self._feeding: Task[None] | None = None
        self._settling: Task[None] | None = None
        self._starting: Task[object] | None = None
        self._transaction: SendTransaction | None = None
        self._has_root_error = False
        """True if `first_failure` is the failure of a record and not of its transaction."""
        self._saving: asyncio.TimerHandle | None = None
        self._interrupts = 0

    def interrupt(self) -> bool:
        """Send no more records, and wait for sent records; a second interrupt ends the wait.

        Returns: True if the run waits now.
        """
        self._interrupts += 1
        if self._feeding is None or self._settling is None:
            if self._starting is not None:
                self._starting.cancel()
            return False
        if self._interrupts > 1:
            self._settling.cancel()
            if self._transaction is not None:
                self._transaction.give_up()
            return False
        if not self._feeding.done():
            self._stop("interrupted")
        return True

    async def run(self) -> SendOutcome:
        """Send the input, and return the results.

        Raises:
            ConnectionFailed, MetadataTimeout: no cluster or no topic; no record was sent.
            CheckpointError: the checkpoint is unreadable, unwritable or of another input, or the file of dead letters is
                unwritable; no record was sent.
            CancelledError: interrupted during start-up.
        """
        checkpoint, letters = self._arguments.checkpoint, self._arguments.dead_letters
        with (
            nullcontext() if checkpoint is None else checkpoint.locked(),
            nullcontext() if letters is None else letters.opened(),
        ):
            return await self._run(None if checkpoint is None else checkpoint.load())

    async def _run(self, stored: StoredPrefix | None) -> SendOutcome:
        arguments, loop = self._arguments, asyncio.get_running_loop()
        self.outcome.prefix_matched = stored is None or stored.size == 0
        self._starting = asyncio.current_task()
        async with Producer.from_config(arguments.config) as producer:
            await await_topic(producer, arguments.topic)
            if arguments.checkpoint is not None:
                await self._check_cluster(stored)
            if self.outcome.prefix_matched:
                self._save_checkpoint()  # an unwritable file has to fail before the first send
            began = loop.time()
            transaction = self._transaction = SendTransaction(producer)
            await transaction.begin()
            self._feeding = asyncio.create_task(self._feed(producer, stored))
            self._settling = asyncio.create_task(self._settle())
            feeding = self._feeding
            feeding.add_done_callback(lambda _: self._calls.put_nowait(None))
            self._settling.add_done_callback(lambda _: feeding.cancel())
            try:
                await asyncio.wait([self._feeding])
                if self.outcome.stopped is not None:  # an abort releases unsent records
                    await transaction.end(commit=False)
                await asyncio.wait([self._settling])
                await transaction.end(commit=self._succeeded)
            finally:
                for task in (self._feeding, self._settling, *self._running_calls):
                    task.cancel()
                if self._saving is not None:
                    self._saving.cancel()
            self.outcome.seconds = loop.time() - began
            self._record_transaction(transaction)
            if self.outcome.unknown or transaction.ended in {
                TransactionOutcome.LEFT_OPEN,
                TransactionOutcome.UNKNOWN,
            }:
                _ = await producer.close(0)
        self._save_checkpoint_now()
        for task in (self._feeding, self._settling):
            if not task.cancelled():
                task.result()  # raises a CheckpointError, or a bug
        return self.outcome

    @property
    def _succeeded(self) -> bool:
        """True if the whole input was read and acknowledged."""
        tasks = (self._feeding, self._settling)
        ended_well = all(each is not None and not each.cancelled() and not each.exception() for each in tasks)
        return ended_well and self.outcome.complete

    def _record_transaction(self, transaction: SendTransaction) -> None:
        self.outcome.transaction = transaction.ended
        if transaction.failure is not None:
            why, before = f"{type(transaction.failure).__name__}: {transaction.failure}", self.outcome.stopped
            self.outcome.stopped = why if before is None else f"{before}; then {why}"

    async def _check_cluster(self, stored: StoredPrefix | None) -> None:
        """Compare the cluster id with the checkpoint's. Raises: CheckpointError: another cluster."""
        async with Client(self._arguments.config) as client:
            cluster = self.outcome.prefix.cluster = await client.cluster_id()
        if stored is not None and stored.cluster != cluster:
            raise CheckpointError(
                f"the checkpoint was made on the cluster {stored.cluster}, not {cluster}: name another file"
            )

    async def _feed(self, producer: Producer, stored: StoredPrefix | None) -> None:
        arguments = self._arguments
        framing = arguments.format.framing(arguments.config.max_request_size)
        check = arguments.format.check(skips=arguments.dead_letters is not None)
        limit = _RateLimit(arguments.rate)
        try:
            async with (
                aclosing(blocks(arguments.paths, framing, check, self.outcome.meter)) as source,
                aclosing(self._behind(stored, source)) as rest,
            ):
                async for block in rest:
                    start = 0
                    while start < len(block):
                        await self._free_calls.acquire()
                        stop = min(len(block), start + await limit.due(self.outcome.sent))
                        part, start = block.slice(start, stop), stop
                        if self.outcome.stopped is not None:
                            return
                        decode = arguments.format.decode(
                            await producer.partitions_for(arguments.topic),
                            skips=arguments.dead_letters is not None,
                        )
                        columns = decode(part.whole.items)
                        self._start_call(producer, part, columns)
                        if columns.bad and arguments.dead_letters is None:
                            [(index, reason)] = columns.bad
                            self._stop(f"{part.place(index)}: {reason}")
                            return
        except CheckpointError:
            raise
        except InputError as error:
            self._stop(str(error))
        except ProducerError as error:
            self._stop(f"{type(error).__name__}: {error}")

    async def _behind(
        self, stored: StoredPrefix | None, source: AsyncIterator[Block]
    ) -> AsyncGenerator[Block, None]:
        """Yield the blocks after the prefix of the checkpoint.

        Raises: CheckpointError: the input has another prefix.
        """
        prefix = self.outcome.prefix
        async for block in source:
            missing = stored.size - prefix.size if stored is not None else 0
            if stored is None or missing <= 0:
                yield block
                continue
            ends = block.whole.ends
            count = len(block) if ends[-1] <= missing else bisect_left(ends, missing) + 1
            self._extend(block.slice(0, count), 0)
            if prefix.size >= stored.size:
                self._check_prefix(stored)
                if count < len(block):
                    yield block.slice(count, len(block))
            self._on_progress(self.outcome)
            await asyncio.sleep(0)  # reading a file never yields, and signals need the event loop
        if stored is not None and prefix.size < stored.size:
            raise CheckpointError(
                f"the input has {prefix.size:,} bytes, fewer than the {stored.size:,} acknowledged bytes of"
                " the checkpoint; pass the same input, or name another checkpoint"
            )

    def _check_prefix(self, stored: StoredPrefix) -> None:
        prefix = self.outcome.prefix
        if (prefix.size, prefix.sha256) != (stored.size, stored.sha256):
            raise CheckpointError(
                f"the first {stored.size:,} bytes of the input differ from the acknowledged bytes of the checkpoint;"
                " pass the same input, or name another checkpoint"
            )
        prefix.records = self.outcome.skipped = stored.records
        self.outcome.prefix_matched = True
        self._save_checkpoint()  # fails if the checkpoint is read-only

    def _start_call(self, producer: Producer, block: Block, columns: Columns) -> None:
        run, first = self._arguments.run, self.outcome.skipped + self.outcome.sent
        if run is not None:
            stamps = (stamp(run, first + position) for position in range(len(columns.values)))
            if columns.headers is None:
                columns.headers = [list(each) for each in stamps]
            else:  # the audit reads the first header of a name
                columns.headers = [[*ours, *own] for ours, own in zip(stamps, columns.headers, strict=True)]
        self.outcome.sent += len(columns.values)
        call = partial(
            producer._send_in,  # noqa: SLF001 - of this package
            self._ordered,
            self._arguments.topic,
            columns.values,
            keys=columns.keys,
            headers=columns.headers,
            partitions=columns.partitions,
            timestamps_ms=columns.timestamps_ms,
        )
        task = asyncio.create_task(failures_of(call, len(columns.values)))
        self._running_calls.add(task)
        self._calls.put_nowait(Call(block, columns, task))

    async def _settle(self) -> None:
        while (call := await self._calls.get()) is not None:
            self._take(call, await call.failures)
            self._running_calls.discard(call.failures)
            self._free_calls.release()
            self._on_progress(self.outcome)

    def _take(self, call: Call, failures: Mapping[int, ProducerError]) -> None:
        outcome, block, columns = self.outcome, call.block, call.columns
        outcome.acknowledged += len(columns.values) - len(failures)
        transaction_errors = (TransactionAborted, TransactionStateError)
        aborted = [at for at, error in failures.items() if isinstance(error, transaction_errors)]
        outcome.aborted += len(aborted)
        skips = self._arguments.dead_letters is not None
        refused = {at: error for at, error in failures.items() if skips and is_record_error(error)}
        outcome.refused += len(refused)
        failed = [at for at in failures if at not in aborted and at not in refused]
        for at in failed:
            outcome.fail(failures[at])
        if aborted:
            return  # an aborted transaction has no prefix
        has_ended = outcome.first_failure is not None
        root_errors = [at for at in failed if root_error(failures[at]) is failures[at]]
        if failed and (not has_ended or (root_errors and not self._has_root_error)):
            self._has_root_error = bool(root_errors)
            row = columns.rows[min(root_errors or failed)]
            outcome.first_failure = block.place(row)
        if has_ended:
            return  # the prefix ends before this call
        good, records = columns.bad[0][0] if columns.bad and not skips else len(block), len(columns.values)
        if failed:
            records = min(failed)
            good = columns.rows[records]
            self._stop("a record failed")
        if skips and not self._write_dead_letters(call, refused, good):
            return
        self._extend(block.slice(0, good), records)
        if self._arguments.checkpoint is not None and self._saving is None:
            self._saving = asyncio.get_running_loop().call_later(SAVE_INTERVAL_S, self._save_checkpoint_now)

    def _write_dead_letters(self, call: Call, refused: Mapping[int, ProducerError], good: int) -> bool:
        """Write the dead letters of a call before item *good*; return False if the write fails."""
        outcome, letters, (block, columns, _) = self.outcome, self._arguments.dead_letters, call
        reasons = dict(columns.bad)
        reasons |= {columns.rows[at]: f"{type(error).__name__}: {error}" for at, error in refused.items()}
        found = [
            DeadLetter(block.file, block.unit, block.first + index, reason, block.whole.items[index])
            for index, reason in sorted(reasons.items())
            if index < good
        ]
        try:
            if letters is not None:
                letters.write(found)
        except CheckpointError as error:
            outcome.first_failure = block.place(found[0].number - block.first)
            self._stop(str(error))
            return False
        outcome.left_out += len(found)
        outcome.refused_before += sum(columns.rows[at] < good for at in refused)
        return True

    def _extend(self, block: Block, records: int) -> None:
        if len(block):
            prefix = self.outcome.prefix
            prefix.extend(block.whole.raw, records)
            prefix.place = block.place(len(block) - 1)

    def _stop(self, why: str) -> None:
        """Stop reading and sending the input."""
        self.outcome.stopped = self.outcome.stopped or why
        if self._feeding is not None and self._feeding is not asyncio.current_task():
            self._feeding.cancel()

    def _save_checkpoint_now(self) -> None:
        self._saving = None
        try:
            self._save_checkpoint()
        except CheckpointError as error:
            self._stop(str(error))

    def _save_checkpoint(self) -> None:
        checkpoint = self._arguments.checkpoint
        if checkpoint is None or not self.outcome.prefix_matched:
            return
        self.outcome.is_saved = False
        checkpoint.save(self.outcome.prefix)
        self.outcome.is_saved = True


class _RateLimit:
    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began: float | None = None

    async def due(self, sent: int) -> int:
        """Wait until more records than *sent* are due, and return the number of records for the next call."""
        if self._rate is None:
            return RECORDS_A_CALL
        now = asyncio.get_running_loop().time
        if self._began is None:
            self._began = now()
        await asyncio.sleep(self._began + sent / self._rate - now())
        late = (now() - self._began) * self._rate - sent  # the wait for acknowledgements delays calls
        return max(1, int(min(RECORDS_A_CALL, max(late, self._rate / CALLS_A_SECOND))))
