"""Verdicts on batches that a broker refused: pure, so that every row of the table can be tested alone."""

# ruff: noqa: I002 - typing would compile each annotation of a NamedTuple at every start

from collections.abc import Mapping
from typing import Final, NamedTuple

from aioproducer.errors import (
    BrokerError,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)

PROBABLY_IN_THE_LOG: Final = (
    "an earlier, unanswered attempt probably stored the batch: the batch was then split, because the size limit has"
    " decreased, and the broker accepts no part"
)
OUTCOME_UNKNOWN: Final = (
    "the outcome is unknown: an earlier attempt got no response, and a later batch failed or was split without a response;"
    " the leader may recognise only the later batch"
)


class Complete(NamedTuple):
    """The batch is in the log, at an offset that the broker did not return."""


class Retry(NamedTuple):
    """The batch must be retried in order, with its sequence unchanged."""

    error: BrokerError


class Renumber(NamedTuple):
    """The leader refused the sequence of the batch: the batch must be retried under a new identity."""

    error: BrokerError


class Split(NamedTuple):
    """The broker refused the size of the batch: the batch must be retried in parts."""

    error: BrokerError


class FailRecords(NamedTuple):
    """The broker refused the records in *messages*: these records fail, other records are retried unless *others_fail*."""

    error: BrokerError
    messages: Mapping[int, str]
    others_fail: bool = False


class Fail(NamedTuple):
    """All records of the batch must fail."""

    error: BrokerError
    of_record: bool = False
    """True if each record is refused for its own content."""
    before_gone: bool = False
    """True if all batches before the newest failed batch that may be in the log must also fail."""


Verdict = Complete | Retry | Renumber | Split | FailRecords | Fail


class BatchFacts(NamedTuple):
    """Facts about a batch that its verdict depends on."""

    records: int
    idempotent: bool
    oldest: bool
    """True if no earlier batch of the partition waits for a response or a retry."""
    in_doubt: bool
    """True if an attempt may be in the log."""
    confirmed: bool
    """True if the batch is in the log, because a later batch is."""
    half_of_possibly_persisted: bool
    """True for a part of a split batch that may be in the log as a whole."""
    refused_without_proof: bool
    """True if the leader denies this batch and all later batches, and may recognise only a later batch that has failed."""
    last_attempt: bool
    """True once `retries` are used up."""
    transactional: bool = False
    """True in a transaction, which has one epoch and commits all records or none."""
    passes_refusals: bool = False
    """True if the transaction continues without records that the broker refuses for their content."""


def decide(error: BrokerError, facts: BatchFacts, record_errors: Mapping[int, str]) -> Verdict:
    """Return the verdict on a batch that the broker refused with *error*.

    A batch in doubt keeps its sequences, because the broker recognises a duplicate only by its sequences (KIP-98).
    So no record of a batch in doubt is removed. A batch in doubt may be split: a broker that has the whole batch
    refuses both halves as duplicates, and returns no offsets.
    """
    keeps_sequences = facts.in_doubt and facts.idempotent
    match error:
        case DuplicateSequenceNumber():
            return Complete()
        case MessageTooLarge() if facts.records > 1:
            return Split(error)
        case OutOfOrderSequenceNumber() | UnknownProducerId() | InvalidProducerEpoch() if facts.confirmed:
            return Complete()
        case OutOfOrderSequenceNumber() | UnknownProducerId() | InvalidProducerEpoch() if (
            facts.refused_without_proof or (facts.half_of_possibly_persisted and facts.oldest)
        ):
            why = OUTCOME_UNKNOWN if facts.refused_without_proof else PROBABLY_IN_THE_LOG
            return Fail(type(error)(f"{error} ({why})"), before_gone=facts.refused_without_proof)
        case OutOfOrderSequenceNumber() | UnknownProducerId() | InvalidProducerEpoch() if facts.idempotent:
            verdict: Verdict = Retry(error) if _may_fit_later(error, facts) else Renumber(error)
        case InvalidRecord() | InvalidTimestamp() if record_errors and not keeps_sequences:
            if len(record_errors) == facts.records:
                return Fail(error, of_record=True)
            others_fail = facts.transactional and not facts.passes_refusals
            return FailRecords(error, record_errors, others_fail)
        case MessageTooLarge() | InvalidRecord() | InvalidTimestamp() if facts.records == 1:
            return Fail(error, of_record=True)
        case _:
            verdict = Retry(error) if error.retriable else Fail(error)
    ends = facts.last_attempt or (facts.transactional and isinstance(verdict, Renumber))
    return Fail(error) if ends else verdict


def _may_fit_later(error: BrokerError, facts: BatchFacts) -> bool:
    """Return True if a batch refused for its sequence is retried with the sequence unchanged.

    A batch that may be in the log keeps its sequence, because only this sequence shows a duplicate. A batch also keeps
    its sequence if it is out of order only because an earlier batch waits for a retry.
    """
    return facts.in_doubt or (isinstance(error, OutOfOrderSequenceNumber) and not facts.oldest)
