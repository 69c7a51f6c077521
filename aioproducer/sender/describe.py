"""What a failed record's error says: where, how often, how long, and why last."""

from __future__ import annotations

import asyncio

from aioproducer.batching.batch import Batch
from aioproducer.batching.failure import Failure
from aioproducer.errors import DeliveryTimeout, ProducerError
from aioproducer.metadata.snapshot import NO_LEADER
from aioproducer.net.connection import Connection


def failed(batch: Batch, connection: Connection, error: ProducerError) -> Failure:
    """Return the failure of *batch* for *error*, which came over *connection*."""
    text = f"{batch.queue} at {connection}, {_effort(batch)}: {error}"
    return Failure(type(error), text, batch.possibly_persisted, batch.last_error or error)


def expired(
    batch: Batch, unreachable: ProducerError | None = None, timeout_s: float | None = None
) -> Failure:
    """Return the failure of *batch* at its deadline, or of a call with a *timeout_s* of its own at that.

    *unreachable* is why its leader is not connected.
    """
    cause = batch.last_error
    limit = "in time" if timeout_s is None else f"within the call's timeout_s={timeout_s:g}"
    text = f"{batch.queue}: not acknowledged {limit}, {_effort(batch)}"
    if batch.last_error is not None:
        text += f"; last error: {type(batch.last_error).__name__}: {batch.last_error}"
    elif batch.persistence.attempt_is_out:
        text += "; the broker has not answered yet"
    elif batch.successors:
        text += "; the broker refused it as it was, and its parts are under way"
    elif batch.queue.leader == NO_LEADER:
        text += "; the partition has no leader that we know of"
    else:
        text += f"; it was not sent to its leader, node {batch.queue.leader}"
        if unreachable is not None:
            text += f": {unreachable}"
            cause = unreachable
    return Failure(DeliveryTimeout, text, batch.possibly_persisted, cause)


def refused_identity(batch: Batch, error: ProducerError) -> Failure:
    """Return the failure of *batch*, which could not be sent for want of a producer id."""
    text = f"{batch.queue}: no producer id, which an idempotent producer needs: {error}"
    return Failure(type(error), text, batch.possibly_persisted, error)


def unencodable(batch: Batch, error: Exception) -> Failure:
    """Return the failure of *batch*, which could not be encoded or compressed."""
    return Failure(ProducerError, f"{batch.queue}: the batch could not be encoded: {error!r}", cause=error)


def _effort(batch: Batch) -> str:
    elapsed_s = asyncio.get_running_loop().time() - batch.created_at
    attempts = f"{batch.attempts} attempt{'' if batch.attempts == 1 else 's'}"
    return f"{attempts} in {elapsed_s:.3f} s"
