"""An end of a transaction that is under way, and what those are told who wait for it."""

from __future__ import annotations

import asyncio
from typing import Any

from aioproducer.errors import (
    AuthenticationFailed,
    CommitFailed,
    ProducerClosed,
    ProducerError,
    RebootstrapRequired,
    TransactionOutcomeUnknown,
    TransactionTimeout,
)


class Ending:
    """A commit or an abort, from the call to its outcome."""

    task: asyncio.Task[ProducerError | None]

    def __init__(self, *, commits: bool, was_prepared: bool = False) -> None:
        self.commits: bool = commits
        self.was_prepared: bool = was_prepared
        """Whether somebody else may end it: then it is not given up here."""
        self.is_out: bool = False
        """Whether the coordinator was asked, so that it may have been done."""
        self.is_uncertain: bool = False
        """Whether it was asked without an answer that tells: it may have been done, whatever a later one says."""
        self.given_up: ProducerError | None = None
        """Why it was given up before that."""

    def written(self) -> None:
        """The coordinator is asked."""
        self.is_uncertain = self.is_out  # its first answer was to ask again
        self.is_out = True

    def unanswered(self) -> None:
        """The coordinator was asked, and the answer is lost."""
        self.is_uncertain = True

    def give_up(self, failed: ProducerError) -> None:
        """Go no further: the coordinator was not asked. Others who wait for it hear of *failed*."""
        self.given_up = failed
        self.task.cancel()

    def told_by(self, refused: ProducerError) -> ProducerError:
        """Return the error for *refused*, the last answer; an unknown outcome if an earlier answer to a commit was lost.

        After a change of the cluster no answer will arrive.
        """
        ends = refused.fatal or isinstance(refused, RebootstrapRequired)
        return lost("commit", refused) if ends and self.commits and self.is_uncertain else refused

    def raise_outcome(self) -> None:
        """Raise what it failed of; it is done, or given up."""
        if self.given_up is not None:
            raise again(self.given_up)
        if self.task.cancelled() and self.commits and self.is_out:
            raise TransactionOutcomeUnknown(
                "commit: the producer was closed before the coordinator has answered; it may have been done or not"
            ) from ProducerClosed("the producer was closed, or its event loop is shutting down")
        raise_outcome(self.task)


def raise_outcome(task: asyncio.Task[ProducerError | None]) -> None:
    """Raise what *task*, which is done, has failed of."""
    if task.cancelled():
        raise ProducerClosed("the producer was closed, or its event loop is shutting down")
    if task.exception() is not None:
        raise crashed(task) from task.exception()
    failed = task.result()
    if failed is not None:
        raise again(failed)


def crashed(task: asyncio.Task[Any]) -> ProducerError:
    """Return the error of a task that has ended with an exception that is no outcome."""
    error = ProducerError(f"{task.get_name()}: ended because of a bug in aioproducer: {task.exception()!r}")
    error.fatal = True
    return error


def again(error: ProducerError) -> ProducerError:
    """Return *error* for one more who hears of it: a shared one would collect the tracebacks of all."""
    told = type(error)(*error.args, possibly_persisted=error.possibly_persisted)
    if isinstance(told, AuthenticationFailed) and isinstance(error, AuthenticationFailed):
        told.broker, told.mechanism = error.broker, error.mechanism
    told.abortable, told.fatal = error.abortable, error.fatal
    told.__cause__ = error.__cause__
    return told


def commit_failed(transactional_id: str, cause: ProducerError) -> CommitFailed:
    """Return the error of a commit that cannot be, since *cause* befell something of the transaction."""
    failed = CommitFailed(
        f"nothing of the transaction of {transactional_id!r} is committed, since part of it has failed:"
        f" {type(cause).__name__}: {cause}; abort it, then this producer goes on"
    )
    failed.__cause__ = cause
    return failed


def late(what: str, limit_s: float, last_error: ProducerError | None) -> TransactionTimeout:
    """Return the error of a call that took longer than *limit_s*, and has changed nothing at the coordinator."""
    error = TransactionTimeout(
        f"cannot {what} within {limit_s:g} s (timeout_s, or max_block_ms without){_so_far(last_error)}"
    )
    error.__cause__ = last_error
    return error


def unknown(what: str, limit_s: float, last_error: ProducerError | None) -> TransactionOutcomeUnknown:
    """Return the error of a call that took longer than *limit_s*, and may have been done."""
    error = TransactionOutcomeUnknown(
        f"{what}: no answer from the coordinator within {limit_s:g} s (timeout_s, or max_block_ms without); it is"
        f" being asked on, call the same method again to wait for the outcome{_so_far(last_error)}"
    )
    error.__cause__ = last_error
    return error


def lost(what: str, error: ProducerError) -> TransactionOutcomeUnknown:
    """Return the error of an end whose answer is lost, and that somebody else's *error* keeps from being asked again."""
    unknown = TransactionOutcomeUnknown(
        f"{what}: the coordinator was asked, its answer was lost, and to ask again is refused ({error}): it may have"
        " been done or not; close this producer"
    )
    unknown.fatal = True
    unknown.__cause__ = error
    return unknown


def _so_far(last_error: ProducerError | None) -> str:
    return "" if last_error is None else f"; last error: {type(last_error).__name__}: {last_error}"
