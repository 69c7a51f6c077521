"""An end of a transaction in progress, and the errors of its callers."""

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
        """True if another process may end the transaction, so this end is never given up."""
        self.is_out: bool = False
        """True once EndTxn is written, so that the transaction may have ended."""
        self.is_uncertain: bool = False
        """True if a response to EndTxn was lost or asked for a retry, so that the outcome is unknown."""
        self.given_up: ProducerError | None = None
        """Error with which the end was given up before EndTxn was written."""

    def written(self) -> None:
        """Note that EndTxn is written."""
        self.is_uncertain = self.is_out  # the response to the first EndTxn was a retriable error
        self.is_out = True

    def unanswered(self) -> None:
        """Note that the response to EndTxn was lost."""
        self.is_uncertain = True

    def give_up(self, failed: ProducerError) -> None:
        """Cancel the end before EndTxn is written; other callers get *failed*."""
        self.given_up = failed
        self.task.cancel()

    def error_for(self, refused: ProducerError) -> ProducerError:
        """Return the error for *refused*, the last response; an unknown outcome if an earlier response was lost.

        After a change of the cluster no response will arrive.
        """
        ends = refused.fatal or isinstance(refused, RebootstrapRequired)
        return lost("commit", refused) if ends and self.commits and self.is_uncertain else refused

    def raise_outcome(self) -> None:
        """Raise the error of a finished or given-up end."""
        if self.given_up is not None:
            raise again(self.given_up)
        if self.task.cancelled() and self.commits and self.is_out:
            raise TransactionOutcomeUnknown(
                "commit: the producer was closed before the coordinator has answered; it may have been done or not"
            ) from ProducerClosed("the producer was closed, or its event loop is shutting down")
        raise_outcome(self.task)


def raise_outcome(task: asyncio.Task[ProducerError | None]) -> None:
    """Raise the error of the finished *task*."""
    if task.cancelled():
        raise ProducerClosed("the producer was closed, or its event loop is shutting down")
    if task.exception() is not None:
        raise crashed(task) from task.exception()
    failed = task.result()
    if failed is not None:
        raise again(failed)


def crashed(task: asyncio.Task[Any]) -> ProducerError:
    """Return the error for a task that crashed."""
    error = ProducerError(f"{task.get_name()}: ended because of a bug in aioproducer: {task.exception()!r}")
    error.fatal = True
    return error


def again(error: ProducerError) -> ProducerError:
    """Return a copy of *error* for another caller; a shared error would collect all tracebacks."""
    copy = type(error)(*error.args, possibly_persisted=error.possibly_persisted)
    if isinstance(copy, AuthenticationFailed) and isinstance(error, AuthenticationFailed):
        copy.broker, copy.mechanism = error.broker, error.mechanism
    copy.abortable, copy.fatal = error.abortable, error.fatal
    copy.__cause__ = error.__cause__
    return copy


def commit_failed(transactional_id: str, cause: ProducerError) -> CommitFailed:
    """Return the error of a commit after a record or offsets failed with *cause*."""
    failed = CommitFailed(
        f"nothing of the transaction of {transactional_id!r} is committed, since part of it has failed:"
        f" {type(cause).__name__}: {cause}; abort it, then this producer goes on"
    )
    failed.__cause__ = cause
    return failed


def late(what: str, limit_s: float, last_error: ProducerError | None) -> TransactionTimeout:
    """Return the error of a call that exceeded *limit_s* without effect at the coordinator."""
    error = TransactionTimeout(
        f"cannot {what} within {limit_s:g} s (timeout_s, or max_block_ms without){_so_far(last_error)}"
    )
    error.__cause__ = last_error
    return error


def unknown(what: str, limit_s: float, last_error: ProducerError | None) -> TransactionOutcomeUnknown:
    """Return the error of a call that exceeded *limit_s* with an unknown outcome."""
    error = TransactionOutcomeUnknown(
        f"{what}: no answer from the coordinator within {limit_s:g} s (timeout_s, or max_block_ms without); it is"
        f" being asked on, call the same method again to wait for the outcome{_so_far(last_error)}"
    )
    error.__cause__ = last_error
    return error


def lost(what: str, error: ProducerError) -> TransactionOutcomeUnknown:
    """Return the error of an end whose response was lost, and whose retry is refused with *error*."""
    unknown = TransactionOutcomeUnknown(
        f"{what}: the coordinator was asked, its answer was lost, and to ask again is refused ({error}): it may have"
        " been done or not; close this producer"
    )
    unknown.fatal = True
    unknown.__cause__ = error
    return unknown


def _so_far(last_error: ProducerError | None) -> str:
    return "" if last_error is None else f"; last error: {type(last_error).__name__}: {last_error}"
