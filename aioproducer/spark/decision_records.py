"""The log of decisions, a compacted topic of one partition: its records, and the state that a reader derives.

A decision makes a batch visible. A decision is valid once its transaction is committed; a control batch in the partition
marks the commit. A reader reads to the end of the log, past open transactions, and matches control batches by producer id.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer._core.records.decode import DecodedBatch
from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.errors import ProtocolError
from aioproducer.spark.delivery import PREFIX, BatchId, DeliveryError, Guarantee

TOPIC: Final = "__aioproducer_spark"
PARTITION: Final = 0
TOPIC_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": "3600000",  # the newest segment is never compacted
}

FORMAT: Final = 1
DONE: Final = "done"
BEGUN: Final = "begun"
"""Name of the record that marks the first use of a prefix; no query or job has this name."""
QUERY_PREFIX: Final = "query "
"""Beginning of the name of each streaming query; the unique id of the query follows."""
COMMIT: Final = 1
"""The type in the key of a control record."""


PIECE: Final = 2_000
"""Maximum number of shares in a record, about 200 KB."""


class Share(NamedTuple):
    """The transaction of one task, and a partition whose log shows the outcome of the transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    version: int
    began_at_ms: int
    timeout_ms: int
    topic: str
    partition: int
    last_offset: int
    """Last record of the task in the partition. The next control batch has the outcome of the transaction."""

    @property
    def prepared(self) -> PreparedTransaction:
        """The transaction of the task."""
        return PreparedTransaction(*self[:6])


class Decided(NamedTuple):
    """The last decision on a query or job."""

    number: int
    guarantee: Guarantee
    run: str
    shares: tuple[Share, ...] = ()
    is_done: bool = False
    """True if all transactions of the batch are known to have ended."""


class Entry(NamedTuple):
    """A record of the log."""

    key: bytes
    value: bytes


def decision(prefix: str, batch: BatchId, guarantee: Guarantee, shares: Sequence[Share] = ()) -> list[Entry]:
    """Return the records of the decision on *batch* and its transactions, to be written in one transaction."""
    pieces = [shares[start : start + PIECE] for start in range(0, len(shares), PIECE)]
    value = {
        "v": FORMAT,
        "batch": batch.number,
        "guarantee": guarantee,
        "run": batch.run,
        "pieces": len(pieces),
    }
    return [
        Entry(
            _text([prefix, batch.name, number]), _text({"v": FORMAT, "batch": batch.number, "shares": piece})
        )
        for number, piece in enumerate(pieces)
    ] + [Entry(_text([prefix, batch.name]), _text(value))]


def done(prefix: str, name: str, number: int) -> Entry:
    """Return the record that marks all transactions of a batch as ended."""
    return Entry(_text([prefix, name, DONE]), _text({"v": FORMAT, "batch": number}))


def begun(prefix: str, first_offset: int) -> list[Entry]:
    """Return the records that note the use of *prefix*, and that accept the loss of all records before *first_offset*."""
    batch = BatchId(BEGUN, first_offset, "")
    return [*decision(prefix, batch, Guarantee.LOG), done(prefix, BEGUN, first_offset)]


class DecisionView:
    """State of the queries and jobs under one prefix, derived from the records that were read."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.offset: int = 0
        """Next offset to read."""
        self.first_offset: int = 0
        """First offset of the log at the last read; above 0 if records were removed."""
        self.topic_id: bytes = NO_TOPIC_ID
        """Id of the topic at the last read."""
        self._elsewhere: defaultdict[str, dict[str, Decided]] = defaultdict(dict)
        """The last decision on each query under other prefixes, without shares."""
        self._decided: dict[str, Decided] = {}
        self._pieces: dict[tuple[str, int], tuple[int, list[Share]]] = {}
        """Number and shares of a batch, by the name of the query or job, and by the number of the record."""
        self._open: defaultdict[int, list[tuple[list[Any], Any]]] = defaultdict(list)
        """Records of open transactions by producer id."""

    def last(self, name: str) -> Decided | None:
        """Return the last decision on a query or job."""
        return self._decided.get(name)

    def all(self) -> dict[str, Decided]:
        """Return the last decision on each query or job."""
        return dict(self._decided)

    def elsewhere(self, name: str) -> dict[str, Decided]:
        """Return the last decision on a query under each other prefix, without shares."""
        return dict(self._elsewhere.get(name, {}))

    def take(self, batch: DecodedBatch) -> None:
        """Read a batch of the log. Raises: DeliveryError: a newer version of aioproducer has written the batch."""
        if batch.last_offset < self.offset:
            return
        self.offset = batch.last_offset + 1
        if batch.control:
            of_producer = self._open.pop(batch.producer_id, [])
            if any(int.from_bytes((each.key or b"")[2:4]) == COMMIT for each in batch.records):
                for key, value in of_producer:
                    if key[0] == self.prefix:
                        self._apply(key, value)
                    else:
                        self._apply_other_prefix(key, value)
            return
        if not batch.transactional:  # another program has written the batch
            return
        for record in batch.records:
            key = _read(record.key)
            if isinstance(key, list) and len(key) in {2, 3} and key[0] == self.prefix:
                self._open[batch.producer_id].append((key, _known_format(_read(record.value))))
            elif isinstance(key, list) and len(key) == 2 and str(key[1]).startswith(QUERY_PREFIX):
                self._open[batch.producer_id].append((key, record.value))

    def _apply_other_prefix(self, key: list[Any], value: Any) -> None:
        """Apply a committed decision of another prefix. Records of newer versions of aioproducer are ignored."""
        with suppress(KeyError, TypeError, ValueError, ProtocolError):
            value = _read(value)
            found = Decided(int(value["batch"]), Guarantee(value["guarantee"]), str(value["run"]))
            self._elsewhere[str(key[1])][str(key[0])] = found

    def _apply(self, key: list[Any], value: dict[str, Any]) -> None:
        """Apply a committed record. The shares of a decision precede the decision."""
        name = str(key[1])
        try:
            number = int(value["batch"])
            if len(key) == 2:
                self._decided[name] = Decided(
                    number,
                    Guarantee(value["guarantee"]),
                    str(value["run"]),
                    tuple(self._shares(name, number, int(value["pieces"]))),
                )
            elif key[2] == DONE:
                last = self._decided.get(name)
                if last is not None and last.number == number:
                    self._decided[name] = last._replace(is_done=True)
            else:
                self._pieces[name, int(key[2])] = number, [Share(*share) for share in value["shares"]]
        except (KeyError, TypeError, ValueError) as error:
            raise DeliveryError(f"the log of decisions, {TOPIC}, has an invalid record: {error}") from error

    def _shares(self, name: str, number: int, pieces: int) -> Iterator[Share]:
        for piece in range(pieces):
            of_batch, shares = self._pieces.pop((name, piece), (None, []))
            if of_batch == number:  # otherwise the shares belong to a later decision
                yield from shares


def must_skip(last: Decided | None, batch: BatchId, guarantee: Guarantee, *, replays: bool) -> bool:
    """Return True if the *last* decision shows that *batch* is already written.

    With *replays* (streams), any run may replay or skip a batch. Without *replays*, Spark rewrites a batch only in another
    run of the query, so a repetition in one run is a different write.

    Raises: DeliveryError: another write has the same prefix, or the write had another guarantee.
    """
    if last is None:
        return False
    if last.guarantee is not guarantee:
        raise DeliveryError(
            f"{batch.name} has decisions with deliveryGuarantee={last.guarantee}; start the query with this"
            f" guarantee, or with another transactionalIdPrefix once all batches are committed"
        )
    if last.number == batch.number and batch.run and last.run == batch.run and not replays:
        raise DeliveryError(
            f"{batch} is committed, and written a second time in one run of the query: give each write a"
            " transactionalIdPrefix of its own"
        )
    return batch.number <= last.number


def committed_by(elsewhere: Mapping[str, Decided], batch: BatchId) -> str | None:
    """Return the other prefix with a decision on *batch* by another run of its query; None without a decision."""
    return next(
        (
            prefix
            for prefix, each in elsewhere.items()
            if each.number >= batch.number and not (batch.run and each.run == batch.run)
        ),
        None,
    )


def may_be_doubled(last: Decided | None, elsewhere: Mapping[str, Decided], batch: BatchId) -> str | None:
    """Return the reason why rows of *batch*, the first of a query's run, may be written already; None without a reason.

    The last decision on the query concerns the previous batch, unless batches were empty or had no decision.
    """
    other = committed_by(elsewhere, batch)
    if other is not None and last is None:  # in foreachBatch the decision may belong to another write
        return f"the batch is committed under {PREFIX} {other!r}"
    numbers = [each.number for each in (last, *elsewhere.values()) if each is not None]
    if batch.number == 0 or max(numbers, default=-1) >= batch.number - 1:
        return None
    if not numbers:
        return (
            "the query has no decision yet: it ran with another deliveryGuarantee, or its batches were empty"
        )
    return f"the last decision is on batch {max(numbers)}: later batches were empty, or had another deliveryGuarantee"


def _known_format(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("v") != FORMAT:
        raise DeliveryError(
            f"the log of decisions, {TOPIC}, has a record that this version of aioproducer cannot read; use the newer"
            " version that has written it"
        )
    return value


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _read(data: bytes | None) -> Any:
    try:
        return json.loads(data or b"null")
    except ValueError as error:
        raise ProtocolError(f"{TOPIC} has a record that is not JSON: {error}") from error
