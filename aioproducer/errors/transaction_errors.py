"""The errors of transactions that are no broker's error codes."""

from __future__ import annotations

from aioproducer.errors.base import ProducerError


class TransactionStateError(ProducerError, RuntimeError):
    """The state of the transaction does not allow the call: a `commit` without a `begin`, say."""


class TransactionAborted(ProducerError):
    """The record was in a transaction that was aborted before it was sent, or acknowledged; no reader will see it."""


class CommitFailed(ProducerError):
    """Nothing of the transaction is committed: a record of it has failed, awaited or not, or its offsets were refused.

    The first failure is the `__cause__`. Abort, then do the work again; if the group has gone on without the consumer
    that read the offsets, other consumers have its partitions by now.
    """

    abortable = True


class TransactionTimeout(ProducerError, TimeoutError):
    """The time for a call ran out, and the coordinator was not asked to end the transaction yet: abort it."""

    abortable = True


class TransactionOutcomeUnknown(ProducerError, TimeoutError):
    """The time for a commit, or an abort, ran out before the coordinator said that it is done; it may be.

    Calling it again goes on asking.
    """


class TransactionLost(ProducerError):
    """The transaction is gone, and with it what was written in it: it timed out, or another producer ended it."""
