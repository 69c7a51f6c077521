"""States and events of a batch, and the table of transitions, from which docs/design.md draws its diagram."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto
from typing import NoReturn


class BatchState(IntEnum):
    """State of a batch; an int, because the hash of an int needs no Python call."""

    OPEN = auto()
    """The batch accepts records."""
    SEALED = auto()
    """The batch accepts no more records and has no valid sequence."""
    IN_FLIGHT = auto()
    """The drained batch is being encoded, or is written and waits for the response. The batch holds its sequence."""
    BACKOFF = auto()
    """The batch waits for a retry with its sequence unchanged."""
    EXPIRED_IN_FLIGHT = auto()
    """The records have failed at their deadline, but the request is in flight and the sequence is in use."""
    DELIVERED = auto()
    """The batch is acknowledged."""
    SPLIT = auto()
    """The batch is replaced by its parts, because the batch was too large or some of its records were refused."""
    FAILED = auto()
    """All records of the batch have failed."""


class BatchEvent(IntEnum):
    """Events of a batch."""

    SEAL = auto()
    """The batch is full, its linger is over, or a flush or close ends the linger."""
    DRAIN = auto()
    """The sender takes the batch for a request."""
    ACKNOWLEDGE = auto()
    """The broker has acknowledged the batch."""
    RETRY = auto()
    """A retriable error, a lost connection, or a request that was never written: the batch keeps its sequence."""
    RENUMBER = auto()
    """The batch is certainly not in the log, and is retried with another sequence."""
    SPLIT = auto()
    """The parts replace the batch."""
    EXPIRE = auto()
    """The deadline has passed while the request is in flight."""
    FAIL = auto()
    """The broker refused the batch for good, or the deadline has passed without a request in flight."""


_S, _E = BatchState, BatchEvent

TRANSITIONS: Mapping[tuple[BatchState, BatchEvent], BatchState] = {
    (_S.OPEN, _E.SEAL): _S.SEALED,
    (_S.OPEN, _E.FAIL): _S.FAILED,
    (_S.SEALED, _E.DRAIN): _S.IN_FLIGHT,
    (_S.SEALED, _E.FAIL): _S.FAILED,
    (_S.IN_FLIGHT, _E.ACKNOWLEDGE): _S.DELIVERED,
    (_S.IN_FLIGHT, _E.RETRY): _S.BACKOFF,
    (_S.IN_FLIGHT, _E.RENUMBER): _S.SEALED,
    (_S.IN_FLIGHT, _E.SPLIT): _S.SPLIT,
    (_S.IN_FLIGHT, _E.EXPIRE): _S.EXPIRED_IN_FLIGHT,
    (_S.IN_FLIGHT, _E.FAIL): _S.FAILED,
    (_S.BACKOFF, _E.DRAIN): _S.IN_FLIGHT,
    (_S.BACKOFF, _E.RENUMBER): _S.SEALED,
    (_S.BACKOFF, _E.FAIL): _S.FAILED,
    (_S.EXPIRED_IN_FLIGHT, _E.ACKNOWLEDGE): _S.DELIVERED,
    (_S.EXPIRED_IN_FLIGHT, _E.FAIL): _S.FAILED,
}


class After(dict[BatchState, BatchState]):
    """State after an event, by the state before the event. Raises: AssertionError for a state without this event."""

    def __init__(self, event: BatchEvent) -> None:
        super().__init__({state: to for (state, each), to in TRANSITIONS.items() if each is event})
        self._event = event

    def __missing__(self, state: BatchState) -> NoReturn:
        raise AssertionError(f"a batch that is {state.name} cannot {self._event.name}")  # -O removes asserts


RESOLVED = frozenset({_S.DELIVERED, _S.SPLIT, _S.FAILED, _S.EXPIRED_IN_FLIGHT})
"""States of a batch whose records have their outcome, so no call waits for the batch."""
