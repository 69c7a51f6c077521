"""The life of a batch: its states, its events, and their table, from which docs/design.md draws its diagram."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto
from typing import NoReturn


class BatchState(IntEnum):
    """State of a batch. Ints are hashed without a call of Python."""

    OPEN = auto()
    """Taking records."""
    SEALED = auto()
    """Takes no more records; it holds no sequence, or one that the broker refused and that is void."""
    IN_FLIGHT = auto()
    """Drained: encoded, written or about to be, waiting for its answer; it holds its sequence."""
    BACKOFF = auto()
    """Waiting to be sent again, under the sequence it has."""
    EXPIRED_IN_FLIGHT = auto()
    """Its records have failed, but the request is still out and the sequence still taken."""
    DELIVERED = auto()
    """Acknowledged."""
    SPLIT = auto()
    """Its parts have taken over: it was too large for the broker, or some of its records were refused."""
    FAILED = auto()
    """Failed for good."""


class BatchEvent(IntEnum):
    """What can happen to a batch."""

    SEAL = auto()
    """It is full, has lingered long enough, or somebody is in a hurry."""
    DRAIN = auto()
    """The sender takes it, to write it."""
    ACKNOWLEDGE = auto()
    """The broker has it."""
    RETRY = auto()
    """There was no answer, or one that passes, or it was not written after all: it is sent under the sequence it has."""
    RENUMBER = auto()
    """It is surely not in the log, and its sequence leads nowhere: it is sent again under another."""
    SPLIT = auto()
    """Its parts take over."""
    EXPIRE = auto()
    """Its deadline has passed while its request is out."""
    FAIL = auto()
    """It was refused for good, or its deadline has passed while nothing of it is out."""


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
    """State after one event, by the state before it. Raises: AssertionError for a state that does not allow the event."""

    def __init__(self, event: BatchEvent) -> None:
        super().__init__({state: to for (state, each), to in TRANSITIONS.items() if each is event})
        self._event = event

    def __missing__(self, state: BatchState) -> NoReturn:
        raise AssertionError(f"a batch that is {state.name} cannot {self._event.name}")  # also under -O


RESOLVED = frozenset({_S.DELIVERED, _S.SPLIT, _S.FAILED, _S.EXPIRED_IN_FLIGHT})
"""Nobody waits for a batch in one of these any more."""
