"""The errors of transactions that are no broker's error codes."""

from __future__ import annotations

from aioproducer.errors.base import ProducerError


class TransactionStateError(ProducerError, RuntimeError):
    """The state of the transaction does not allow the call: a `commit` without a `begin`, say."""


class TransactionAborted(ProducerError):
    """The record was in a transaction that was aborted before it was sent, or acknowledged; no reader will see it."""


class CommitFailed(ProducerError):
    """The offsets of a transaction were refused: the consumer that they are of has lost its place in the group.

    Abort; other consumers have its partitions, and process the records again. The code is the `__cause__`.
    """

    abortable = True


class TransactionTimeout(ProducerError, TimeoutError):
    """The transaction was open for longer than `transaction_timeout_ms`, and the broker has aborted it."""

    abortable = True


class TransactionOutcomeUnknown(ProducerError, TimeoutError):
    """The time for a commit, or an abort, ran out before the coordinator said that it is done; it may be.

    Calling it again goes on asking.
    """


class TransactionLost(ProducerError):
    """The transaction is gone, and with it what was written in it: it timed out, or another producer ended it."""
