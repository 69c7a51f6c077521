"""An end in progress, and the errors of its callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aioproducer._core.transactions.transaction_requests import (
    Ending,
    commit_error,
    copy_of,
    raise_outcome,
    timeout_error,
    unknown_outcome_error,
)
from aioproducer.errors import (
    AuthenticationFailed,
    CommitFailed,
    ConnectionFailed,
    ProducerClosed,
    ProducerError,
    ProducerFenced,
    RebootstrapRequired,
    TransactionOutcomeUnknown,
    TransactionTimeout,
)
from tests.cases import for_each
from tests.unit.floor_rig import settle


def task_of(outcome: ProducerError | None, *, lasts: bool = False) -> asyncio.Task[ProducerError | None]:
    async def work() -> ProducerError | None:
        if lasts:
            await asyncio.get_running_loop().create_future()
        return outcome

    return asyncio.create_task(work())


def fatal() -> ProducerError:
    error = ProducerFenced("another one")
    error.fatal = True
    return error


class TestEnding:
    def test_ending_starts_before_its_request(self) -> None:
        ending = Ending(commits=True)
        assert (ending.commits, ending.was_prepared, ending.given_up) == (True, False, None)
        assert (ending.is_out, ending.is_uncertain) == (False, False)
        ending.written()
        assert (ending.is_out, ending.is_uncertain) == (True, False)

    @pytest.mark.parametrize("happens", [Ending.written, Ending.unanswered])
    def test_ending_is_uncertain_when_the_response_is_lost(self, happens: Callable[[Ending], None]) -> None:
        ending = Ending(commits=True)
        ending.written()
        happens(ending)
        assert ending.is_uncertain

    async def test_given_up_ending_cancels_its_task_and_raises(self) -> None:
        ending = Ending(commits=True)
        ending.task = task_of(None, lasts=True)
        await settle()
        failed = CommitFailed("late")
        ending.give_up(failed)
        with pytest.raises(CommitFailed, match="late") as raised:
            ending.raise_outcome()
        assert raised.value is not failed
        await settle()
        assert ending.task.cancelled()
        with pytest.raises(CommitFailed, match="late"):
            ending.raise_outcome()

    @for_each(
        ("commits", "is_uncertain", "refused", "is_unknown"),
        [
            (True, True, fatal(), True),
            (True, True, RebootstrapRequired("moved"), True),
            (True, True, CommitFailed("late"), False),
            (True, False, fatal(), False),
            (False, True, fatal(), False),
        ],
    )
    def test_refused_commit_is_unknown_after_a_lost_response(
        self, commits: bool, is_uncertain: bool, refused: ProducerError, is_unknown: bool
    ) -> None:
        ending = Ending(commits=commits)
        ending.written()
        if is_uncertain:
            ending.unanswered()
        error = ending.error_for(refused)
        if not is_unknown:
            assert error is refused
            return
        assert isinstance(error, TransactionOutcomeUnknown)
        assert (error.abortable, error.fatal, error.__cause__) == (False, True, refused)
        assert str(error) == (
            "commit: the outcome is unknown, because the coordinator's response was lost and the retry was refused"
            f" ({refused}); close this producer"
        )

    @for_each(
        ("commits", "written", "kind"),
        [
            (True, True, TransactionOutcomeUnknown),
            (True, False, ProducerClosed),
            (False, True, ProducerClosed),
        ],
    )
    async def test_end_cancelled_by_a_close_raises(
        self, commits: bool, written: bool, kind: type[ProducerError]
    ) -> None:
        ending = Ending(commits=commits)
        ending.task = task_of(None, lasts=True)
        await settle()
        if written:
            ending.written()
        ending.task.cancel()
        await settle()
        with pytest.raises(kind) as raised:
            ending.raise_outcome()
        closed = raised.value
        if kind is TransactionOutcomeUnknown:
            assert str(closed) == (
                "commit: the outcome is unknown, because the producer was closed before the coordinator responded"
            )
            assert isinstance(closed.__cause__, ProducerClosed)
            closed = closed.__cause__
        assert str(closed) == "the producer was closed, or its event loop is shutting down"

    @pytest.mark.parametrize("commits", [True, False])
    async def test_successful_end_raises_nothing(self, commits: bool) -> None:
        ending = Ending(commits=commits)
        ending.task = task_of(None)
        ending.written()
        await settle()
        ending.raise_outcome()

    async def test_ending_raises_its_outcome_for_every_caller(self) -> None:
        ending = Ending(commits=False)
        ending.task = task_of(None)
        await settle()
        ending.raise_outcome()
        ending.task = task_of(ProducerFenced("gone"))
        await settle()
        for _ in range(2):
            with pytest.raises(ProducerFenced, match="gone"):
                ending.raise_outcome()


async def test_crashed_task_raises_a_fatal_error() -> None:
    async def crash() -> None:
        raise ZeroDivisionError("oops")

    task = asyncio.create_task(crash(), name="commit")
    await settle()
    with pytest.raises(ProducerError) as raised:
        raise_outcome(task)
    assert str(raised.value) == "commit: ended because of a bug in aioproducer: ZeroDivisionError('oops')"
    assert raised.value.fatal
    assert raised.value.__cause__ is task.exception()


@pytest.mark.parametrize(("abortable", "fatal"), [(True, False), (False, True)])
def test_copy_of_error_keeps_message_and_flags(abortable: bool, fatal: bool) -> None:
    error = ProducerFenced("gone", possibly_persisted=True)
    error.abortable, error.fatal, error.__cause__ = abortable, fatal, ValueError("why")
    told = copy_of(error)
    assert told is not error
    assert type(told) is ProducerFenced
    assert told.args == ("gone",)
    assert (told.abortable, told.fatal, told.possibly_persisted) == (abortable, fatal, True)
    assert told.__cause__ is error.__cause__


def test_copy_of_error_keeps_its_attributes() -> None:
    error = AuthenticationFailed("refused", broker="b1:9092", mechanism="PLAIN")
    assert vars(copy_of(error)) == vars(error)


def test_timeout_error_is_abortable() -> None:
    error = timeout_error("commit", 5.0, None)
    assert type(error) is TransactionTimeout
    assert str(error) == "cannot commit within 5 s (timeout_s, or max_block_ms without)"
    assert error.__cause__ is None
    last = ConnectionFailed("lost")
    error = timeout_error("commit", 0.25, last)
    assert str(error).endswith(
        "within 0.25 s (timeout_s, or max_block_ms without); last error: ConnectionFailed: lost"
    )
    assert error.__cause__ is last


def test_unknown_outcome_error_names_the_last_error() -> None:
    error = unknown_outcome_error("abort", 5.0, None)
    assert type(error) is TransactionOutcomeUnknown
    assert str(error) == (
        "abort: no answer from the coordinator within 5 s (timeout_s, or max_block_ms without); the request is still pending;"
        " call the same method again to wait for the outcome"
    )
    last = ConnectionFailed("lost")
    assert str(unknown_outcome_error("abort", 5.0, last)).endswith(
        "outcome; last error: ConnectionFailed: lost"
    )
    assert unknown_outcome_error("abort", 5.0, last).__cause__ is last


def test_commit_error_names_its_cause() -> None:
    cause = ConnectionFailed("gone")
    error = commit_error("tx", cause)
    assert "the transaction of 'tx' is not committed" in str(error)
    assert "ConnectionFailed: gone; abort the transaction" in str(error)
    assert error.__cause__ is cause
