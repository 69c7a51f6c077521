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
    "an earlier, unanswered attempt seems to have stored the batch: it has become too large since, and was"
    " resent in parts, none of which the broker accepts"
)
OUTCOME_UNKNOWN: Final = (
    "the leader denies an earlier, unanswered attempt, which proves nothing: a later batch failed or was split without an"
    " answer, and the leader may recognise only that batch"
)


class Complete(NamedTuple):
    """The batch is in the log, at an offset that the broker did not return."""


class Retry(NamedTuple):
    """Retry in order, with the sequence unchanged."""

    error: BrokerError


class Renumber(NamedTuple):
    """Refused for its sequence: retry under a new identity."""

    error: BrokerError


class Split(NamedTuple):
    """Refused for its size: retry in parts."""

    error: BrokerError


class FailRecords(NamedTuple):
    """Refused because of these records: fail them, and retry the other records unless *others_fail*."""

    error: BrokerError
    messages: Mapping[int, str]
    others_fail: bool = False


class Fail(NamedTuple):
    """Failed for good."""

    error: BrokerError
    of_record: bool = False
    """True if each record is refused for its own content."""
    before_gone: bool = False
    """True if all batches before the batch that is gone in doubt fail as well."""


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
    """True for a part of a batch whose whole may be in the log."""
    refused_without_proof: bool
    """True if the leader denies this batch and all behind it, and may recognise only a later batch that is gone."""
    last_attempt: bool
    """True once `retries` are used up."""
    transactional: bool = False
    """True in a transaction, which has one epoch and commits all records or none."""
    passes_refusals: bool = False
    """True if the transaction continues without records that the broker refuses for their content."""


def decide(error: BrokerError, facts: BatchFacts, record_errors: Mapping[int, str]) -> Verdict:
    """Return what to do with a batch that the broker answered with *error*.

    A batch in doubt keeps its sequences, because the broker recognises a duplicate only by them (KIP-98). So none of its
    records is removed. The batch may be split: a broker that has the whole refuses both halves as duplicates, and
    returns no offsets.
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

    That applies to a batch that may be in the log, which only the same sequence shows, and to a batch that is out of
    order only because an earlier batch waits for a retry.
    """
    return facts.in_doubt or (isinstance(error, OutOfOrderSequenceNumber) and not facts.oldest)
