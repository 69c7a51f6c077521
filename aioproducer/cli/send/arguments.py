"""The plan of one `aioproducer send`, its transaction, and its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

from aioproducer.cli.reports import Failures
from aioproducer.cli.send.decoding import (
    Decode,
    Fields,
    Header,
    keyed,
    objects,
    text_only,
    whole,
    with_constants,
)
from aioproducer.cli.send.framing import Framing, JsonInput, LengthPrefixed, Lines
from aioproducer.cli.send.input_kind import TextCheck
from aioproducer.cli.send.unpacking import Meter
from aioproducer.cli.send.written_files import Checkpoint, DeadLetters, Prefix
from aioproducer.config import ProducerConfig
from aioproducer.errors import ProducerError, TransactionOutcomeUnknown
from aioproducer.producer import Producer


class TransactionOutcome(Enum):
    """Outcome of the transaction; the values are its texts."""

    COMMITTED = "Committed: readers of committed records see all of it."
    ABORTED = "Aborted: readers of committed records (isolation.level=read_committed) see nothing of it."
    LEFT_OPEN = (
        "Not committed: readers of committed records see nothing of it; it is aborted when its time is up."
    )
    UNKNOWN = "Unknown outcome: readers of committed records see all of it, or nothing."


def root_error(error: ProducerError) -> ProducerError:
    """Return *error*, or the error of its transaction if only the transaction prevented the send."""
    cause = error.__cause__
    return (
        cause if isinstance(cause, ProducerError) and str(error).startswith(_TRANSACTION_PREFIXES) else error
    )


_TRANSACTION_PREFIXES: Final = ("cannot send: the transaction of ", "cannot go on: the transaction of ")


class SendTransaction:
    """The transaction of all records. Without a `transactional_id`, the methods have no effect."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._applies = producer.config.transactional_id is not None
        self._ending: asyncio.Task[None] | None = None
        self.ended: TransactionOutcome | None = None
        self.failure: ProducerError | None = None
        """Error that prevented the commit."""

    async def begin(self) -> None:
        """Begin the transaction."""
        if self._applies:
            _ = await self._producer.begin_transaction()

    async def end(self, *, commit: bool) -> None:
        """Commit or abort and wait for the end, or until `give_up`; later calls do nothing."""
        if not self._applies or self._ending is not None:
            return
        self._ending = asyncio.create_task(self._commit() if commit else self._abort())
        await asyncio.wait([self._ending])
        if self._ending.cancelled():
            self.ended = TransactionOutcome.UNKNOWN if commit else TransactionOutcome.LEFT_OPEN
        else:
            self._ending.result()

    def give_up(self) -> None:
        """Stop waiting for the end of the transaction."""
        if self._ending is not None:
            self._ending.cancel()

    async def _commit(self) -> None:
        while True:
            try:
                await self._producer.commit_transaction()
            except TransactionOutcomeUnknown:
                continue  # the producer repeats the request
            except ProducerError as error:
                self.failure = error
                if error.abortable:
                    await self._abort()
                else:
                    self.ended = TransactionOutcome.UNKNOWN
                return
            self.ended = TransactionOutcome.COMMITTED
            return

    async def _abort(self) -> None:
        try:
            await self._producer.abort_transaction()
        except ProducerError as error:
            self.failure = self.failure or error
            self.ended = TransactionOutcome.LEFT_OPEN
        else:
            self.ended = TransactionOutcome.ABORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Format of the input: lines, json or length-prefixed."""

    name: str = "lines"
    key_separator: bytes | None = None
    fields: Fields = field(default_factory=Fields)
    key: bytes | None = None
    """Key of every record."""
    headers: Sequence[Header] = ()
    """Headers of every record, before the headers in the input."""
    delimiter: bytes = b"\n"
    """End of each record in the line and JSON formats."""
    force: bool = False
    """True if binary input is sent in the line and JSON formats."""

    @property
    def unit(self) -> str:
        """Word for a record: "line" or "record"."""
        return "record" if self.name == "length-prefixed" else "line"

    def framing(self, limit: int) -> Callable[[], Framing]:
        """Return the factory of the framing of each file; records have at most *limit* bytes."""
        if self.name == "length-prefixed":
            return partial(LengthPrefixed, limit)
        if self.name == "json" and self.delimiter == b"\n":
            return partial(JsonInput, limit)
        return partial(Lines, limit, self.delimiter)

    def check(self, *, skips: bool = False) -> Callable[[], TextCheck] | None:
        """Return the factory of the check of each input; None accepts any bytes. *skips*: bad records are left out."""
        if self.force or self.name == "length-prefixed":
            return None
        by_lines = self.name == "lines" and self.delimiter == b"\n"
        utf8 = not skips and self.delimiter.isascii()
        return partial(TextCheck, nul=b"\0" in self.delimiter, utf8=utf8, by_lines=by_lines)

    def decode(self, known: Collection[int], *, skips: bool = False) -> Decode:
        """Return the decoder; *known* are the topic's partitions. With *skips* the decoder leaves out malformed records."""
        if self.name == "json":
            decode = objects(self.fields, known, skips=skips)
        else:
            decode = whole if self.key_separator is None else keyed(self.key_separator, skips=skips)
            if self.name == "lines" and not self.force:
                decode = text_only(decode, nul=b"\0" in self.delimiter, skips=skips)
        if self.key is None and not self.headers:
            return decode
        return with_constants(decode, self.key, self.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendArguments:
    """Arguments of one send."""

    config: ProducerConfig
    topic: str
    paths: Sequence[str] = ("-",)
    """Files in order; `-` is standard input."""
    format: Format = field(default_factory=Format)
    rate: float | None = None
    """Records per second; None: as fast as possible."""
    run: str | None = None
    """Run id for `aioproducer audit`; None: no headers are added."""
    checkpoint: Checkpoint | None = None
    dead_letters: DeadLetters | None = None
    """Destination of records that cannot be sent; if None, the first such record ends the command."""


@dataclass(slots=True)
class SendOutcome:
    """Results so far."""

    arguments: SendArguments
    skipped: int = 0
    """Records sent by an earlier command, according to its checkpoint."""
    sent: int = 0
    """Records passed to the producer by this command."""
    acknowledged: int = 0
    failures: Failures = field(default_factory=Failures)
    possibly_persisted: int = 0
    """Failed records that may be in the topic."""
    first_failure: str | None = None
    """Place of the first failed record in the input."""
    prefix: Prefix = field(default_factory=Prefix)
    meter: Meter = field(default_factory=Meter)
    """Position of the prefix in the stored files."""
    prefix_matched: bool = True
    """True once the input has matched the prefix of its checkpoint. Until then, the checkpoint is not overwritten."""
    is_saved: bool = True
    """True if the checkpoint has the prefix; False after a failed write."""
    stopped: str | None = None
    """Reason of an early end, or None."""
    left_out: int = 0
    """Dead letters: malformed or refused records."""
    refused: int = 0
    """Refused records. Refused records after a failure are not in the file of dead letters yet."""
    refused_before: int = 0
    """Refused records in the prefix."""
    aborted: int = 0
    """Records that were never sent because their transaction was aborted."""
    transaction: TransactionOutcome | None = None
    """Outcome of the transaction, or None."""
    seconds: float = 0.0
    """Time from the first call to the last outcome."""

    @property
    def unknown(self) -> int:
        """Records without an outcome."""
        return self.sent - self.acknowledged - self.refused - self.aborted - self.failures.total()

    @property
    def complete(self) -> bool:
        """True if all records except dead letters were acknowledged, and committed if there is a transaction."""
        committed = self.transaction in {None, TransactionOutcome.COMMITTED}
        return self.stopped is None and self.acknowledged + self.refused == self.sent and committed

    def fail(self, error: ProducerError) -> None:
        """Count a failed record."""
        self.failures.add(root_error(error))
        self.possibly_persisted += error.possibly_persisted
