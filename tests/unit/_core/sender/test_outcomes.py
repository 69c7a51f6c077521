"""The table of docs/design.md and Kafka's own rules, row by row."""

from __future__ import annotations

import pytest

from aioproducer._core.sender.outcomes import (
    OUTCOME_UNKNOWN,
    BatchFacts,
    Complete,
    Fail,
    FailRecords,
    Renumber,
    Retry,
    Split,
    Verdict,
    decide,
)
from aioproducer.errors import (
    BrokerError,
    CorruptMessage,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailed,
    UnknownProducerId,
    broker_error,
)
from tests.cases import for_each

RESENT = [2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 72, 74, 75, 78, 80, 83, 84, 88, 89, 100, 103]
"""Kafka's retriable codes, of those that a produce request may be answered with."""

REFUSED_FOR_ITS_SEQUENCE = [OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerEpoch]
REFUSED_FOR_RECORDS = [InvalidRecord, InvalidTimestamp]
JUDGED_BY_STANDING = {
    kind.code
    for kind in (
        DuplicateSequenceNumber,
        MessageTooLarge,
        *REFUSED_FOR_ITS_SEQUENCE,
        *REFUSED_FOR_RECORDS,
    )
}
NAMED = {code for code, kind in BrokerError.by_code.items() if kind.__name__ != f"ErrorCode{code}"}
"""Without those that other tests have had made for codes that nobody knows."""
FINAL = sorted(NAMED - set(RESENT) - JUDGED_BY_STANDING)
UNHEARD_OF = 4711


def facts(
    *,
    records: int = 3,
    idempotent: bool = True,
    oldest: bool = True,
    in_doubt: bool = False,
    confirmed: bool = False,
    half_of_possibly_persisted: bool = False,
    refused_without_proof: bool = False,
    last_attempt: bool = False,
) -> BatchFacts:
    return BatchFacts(
        records=records,
        idempotent=idempotent,
        oldest=oldest,
        in_doubt=in_doubt,
        confirmed=confirmed,
        half_of_possibly_persisted=half_of_possibly_persisted,
        refused_without_proof=refused_without_proof,
        last_attempt=last_attempt,
    )


def verdict(
    kind: type[BrokerError], stands: BatchFacts, record_errors: dict[int, str] | None = None
) -> type[Verdict]:
    error = kind("told by the broker")
    outcome = decide(error, stands, record_errors or {})
    assert isinstance(outcome, Complete) or outcome.error is error
    return type(outcome)


@for_each("in_doubt", [False, True])
@for_each("code", RESENT)
def test_retriable_error_retries(code: int, in_doubt: bool) -> None:
    assert verdict(broker_error(code), facts(in_doubt=in_doubt)) is Retry


@for_each("code", RESENT)
def test_retriable_error_fails_once_the_retries_are_used_up(code: int) -> None:
    assert verdict(broker_error(code), facts(last_attempt=True)) is Fail


@for_each("in_doubt", [False, True])
@for_each("code", [*FINAL, UNHEARD_OF])
def test_other_error_fails_the_batch(code: int, in_doubt: bool) -> None:
    assert verdict(broker_error(code), facts(in_doubt=in_doubt)) is Fail


@for_each("last_attempt", [False, True])
@for_each("in_doubt", [False, True])
def test_duplicate_is_delivered_at_an_unknown_offset(in_doubt: bool, last_attempt: bool) -> None:
    stands = facts(in_doubt=in_doubt, last_attempt=last_attempt)
    assert decide(DuplicateSequenceNumber(), stands, {}) == Complete()


class TestTooLarge:
    @for_each("in_doubt", [False, True])
    @for_each("idempotent", [False, True])
    def test_batch_of_several_records_is_split(self, idempotent: bool, in_doubt: bool) -> None:
        stands = facts(records=2, idempotent=idempotent, in_doubt=in_doubt)
        assert verdict(MessageTooLarge, stands) is Split

    def test_batch_is_split_on_the_last_attempt(self) -> None:
        assert verdict(MessageTooLarge, facts(records=2, last_attempt=True)) is Split

    def test_single_record_fails(self) -> None:
        error = MessageTooLarge()
        assert decide(error, facts(records=1), {}) == Fail(error, of_record=True)

    @for_each(("oldest", "expected"), [(True, Fail), (False, Retry)])
    @for_each("kind", REFUSED_FOR_ITS_SEQUENCE)
    def test_half_of_stored_batch_fails_when_its_sequence_is_refused(
        self, kind: type[BrokerError], oldest: bool, expected: type[Verdict]
    ) -> None:
        outcome = decide(
            kind("no"),
            facts(oldest=oldest, in_doubt=True, half_of_possibly_persisted=True),
            {},
        )
        assert isinstance(outcome, expected)
        assert ("accepts no part" in str(outcome)) is oldest


class TestRefusedForItsSequence:
    @pytest.mark.parametrize("kind", REFUSED_FOR_ITS_SEQUENCE)
    def test_refused_batch_is_renumbered(self, kind: type[BrokerError]) -> None:
        assert verdict(kind, facts()) is Renumber

    @pytest.mark.parametrize("kind", REFUSED_FOR_ITS_SEQUENCE)
    def test_uncertain_batch_keeps_its_sequence(self, kind: type[BrokerError]) -> None:
        assert verdict(kind, facts(in_doubt=True)) is Retry

    @pytest.mark.parametrize("kind", REFUSED_FOR_ITS_SEQUENCE)
    def test_batch_refused_without_proof_fails_with_those_before_it(self, kind: type[BrokerError]) -> None:
        outcome = decide(kind("no"), facts(in_doubt=True, refused_without_proof=True), {})
        assert isinstance(outcome, Fail)
        assert outcome.before_gone
        assert isinstance(outcome.error, kind)
        assert OUTCOME_UNKNOWN in str(outcome.error)

    @for_each("half", [False, True])
    @for_each("kind", REFUSED_FOR_ITS_SEQUENCE)
    def test_confirmed_batch_is_delivered_at_an_unknown_offset(
        self, kind: type[BrokerError], half: bool
    ) -> None:
        stands = facts(in_doubt=True, confirmed=True, half_of_possibly_persisted=half)
        assert decide(kind("no"), stands, {}) == Complete()

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [(OutOfOrderSequenceNumber, Retry), (UnknownProducerId, Renumber), (InvalidProducerEpoch, Renumber)],
    )
    def test_batch_behind_a_resent_one_retries_only_out_of_order(
        self, kind: type[BrokerError], expected: type[Verdict]
    ) -> None:
        assert verdict(kind, facts(oldest=False)) is expected

    @for_each("oldest", [False, True])
    @for_each("kind", REFUSED_FOR_ITS_SEQUENCE)
    def test_refused_batch_fails_once_the_retries_are_used_up(
        self, kind: type[BrokerError], oldest: bool
    ) -> None:
        assert verdict(kind, facts(oldest=oldest, last_attempt=True)) is Fail

    @pytest.mark.parametrize("kind", REFUSED_FOR_ITS_SEQUENCE)
    def test_batch_without_a_sequence_fails(self, kind: type[BrokerError]) -> None:
        assert verdict(kind, facts(idempotent=False)) is Fail


class TestRefusedForSomeRecords:
    @for_each("last_attempt", [False, True])
    @for_each("kind", REFUSED_FOR_RECORDS)
    def test_refused_records_fail_and_the_others_are_sent(
        self, kind: type[BrokerError], last_attempt: bool
    ) -> None:
        error = kind()
        messages = {1: "no key", 2: "no key either"}
        outcome = decide(error, facts(records=3, last_attempt=last_attempt), messages)
        assert outcome == FailRecords(error, messages)

    @pytest.mark.parametrize("kind", REFUSED_FOR_RECORDS)
    def test_batch_fails_if_all_its_records_are_refused(self, kind: type[BrokerError]) -> None:
        error = kind()
        assert decide(error, facts(records=2), {0: "bad", 1: "bad"}) == Fail(error, of_record=True)

    @pytest.mark.parametrize("kind", REFUSED_FOR_RECORDS)
    def test_record_of_a_lone_batch_need_not_be_named(self, kind: type[BrokerError]) -> None:
        error = kind()
        assert decide(error, facts(records=1), {}) == Fail(error, of_record=True)

    @pytest.mark.parametrize("kind", REFUSED_FOR_RECORDS)
    def test_batch_fails_if_no_records_are_named(self, kind: type[BrokerError]) -> None:
        error = kind()
        assert decide(error, facts(records=2), {}) == Fail(error)

    @for_each("kind", REFUSED_FOR_RECORDS)
    @for_each(("idempotent", "expected"), [(True, Fail), (False, FailRecords)])
    def test_uncertain_batch_is_split_only_without_a_sequence(
        self, kind: type[BrokerError], idempotent: bool, expected: type[Verdict]
    ) -> None:
        assert verdict(kind, facts(in_doubt=True, idempotent=idempotent), {0: "bad"}) is expected


@for_each("kind", [NotLeaderOrFollower, NotEnoughReplicas, CorruptMessage, TopicAuthorizationFailed])
def test_record_errors_change_nothing_about_other_answers(kind: type[BrokerError]) -> None:
    assert verdict(kind, facts(), {0: "odd"}) is verdict(kind, facts())


class TestInATransaction:
    """A transaction has one epoch for all its partitions and is atomic."""

    @pytest.mark.parametrize("kind", REFUSED_FOR_ITS_SEQUENCE)
    def test_error_that_needs_another_epoch_fails(self, kind: type[BrokerError]) -> None:
        assert verdict(kind, facts()._replace(transactional=True)) is Fail

    @pytest.mark.parametrize("kind", REFUSED_FOR_ITS_SEQUENCE)
    def test_uncertain_batch_keeps_its_sequence(self, kind: type[BrokerError]) -> None:
        assert verdict(kind, facts(in_doubt=True)._replace(transactional=True)) is Retry

    @pytest.mark.parametrize("kind", REFUSED_FOR_RECORDS)
    def test_records_beside_refused_ones_fail_unless_refusals_pass(self, kind: type[BrokerError]) -> None:
        error, of_transaction = kind("no"), facts()._replace(transactional=True)
        passing = of_transaction._replace(passes_refusals=True)
        assert decide(error, of_transaction, {0: "bad"}) == FailRecords(error, {0: "bad"}, others_fail=True)
        assert decide(error, passing, {0: "bad"}) == FailRecords(error, {0: "bad"})

    @for_each("code", RESENT)
    def test_retriable_error_retries(self, code: int) -> None:
        assert verdict(broker_error(code), facts()._replace(transactional=True)) is Retry

    def test_several_records_that_are_too_large_together_are_split(self) -> None:
        assert verdict(MessageTooLarge, facts()._replace(transactional=True)) is Split
