"""Verdicts on batches that a broker refused: pure, so that every row of the table can be tested alone."""

# ruff: noqa: I002 - else typing compiles each annotation of a NamedTuple, for which every process waits

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
    """It is in the log; -1 where the broker did not say."""

    base_offset: int
    log_append_time_ms: int


class Retry(NamedTuple):
    """Send it again, in order, under the sequence it has."""

    error: BrokerError


class Renumber(NamedTuple):
    """Refused for its sequence: send it again under a new identity."""

    error: BrokerError


class Split(NamedTuple):
    """Refused for its size: send it again in parts."""

    error: BrokerError


class FailRecords(NamedTuple):
    """Refused because of these records: fail them, and send the other records again unless *others_fail*."""

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
    """What a verdict depends on besides the answer."""

    records: int
    idempotent: bool
    oldest: bool
    """Nothing before it in its partition waits for an answer or a retry."""
    in_doubt: bool
    """An attempt may be in the log."""
    confirmed: bool
    """It is in the log: one behind it is."""
    half_of_possibly_persisted: bool
    """A part of a batch that may be in the log whole."""
    denied_in_vain: bool
    """True if the leader denies this batch and all behind it, and may recognise only a later batch that is gone."""
    last_attempt: bool
    """`retries` is used up."""
    transactional: bool = False
    """It is part of a transaction, which has one epoch, and comes about whole or not at all."""
    passes_refusals: bool = False
    """True if the transaction continues without records that the broker refuses for their content."""


def judge(error: BrokerError, facts: BatchFacts, record_errors: Mapping[int, str]) -> Verdict:
    """Return what to do with a batch that the broker answered with *error*.

    A batch of uncertain fate keeps the sequences it has: only under these can the broker recognise it as one
    that it has (KIP-98). So none of its records is taken out. It may be split, since a broker that has it
    appends neither half: their turn is over, it says. But it cannot say any more where they are.
    """
    keeps_sequences = facts.in_doubt and facts.idempotent
    match error:
        case DuplicateSequenceNumber():
            return Complete(base_offset=-1, log_append_time_ms=-1)
        case MessageTooLarge() if facts.records > 1:
            return Split(error)
        case OutOfOrderSequenceNumber() | UnknownProducerId() | InvalidProducerEpoch() if facts.confirmed:
            return Complete(base_offset=-1, log_append_time_ms=-1)
        case OutOfOrderSequenceNumber() | UnknownProducerId() | InvalidProducerEpoch() if (
            facts.denied_in_vain or (facts.half_of_possibly_persisted and facts.oldest)
        ):
            why = OUTCOME_UNKNOWN if facts.denied_in_vain else PROBABLY_IN_THE_LOG
            return Fail(type(error)(f"{error} ({why})"), before_gone=facts.denied_in_vain)
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
    """Whether a batch refused for its sequence is to be sent again under it.

    So it is if it may be in the log itself, which only the same sequence can show; and if its
    sequence is out of order only because one before it is still to be sent again.
    """
    return facts.in_doubt or (isinstance(error, OutOfOrderSequenceNumber) and not facts.oldest)
