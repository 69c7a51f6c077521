"""The states of a transactional producer, the events that move it, and the table of both (KIP-98, KIP-890, KIP-939).

`docs/design.md` draws its diagram from `TRANSITIONS`, beside the one of a batch; a test keeps the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto


class TransactionState(IntEnum):
    """Where a transactional producer stands."""

    UNINITIALIZED = auto()
    """It has no producer id yet."""
    INITIALIZING = auto()
    """It asks its coordinator for a producer id, or for the next epoch: whoever had the last one is fenced."""
    READY = auto()
    """No transaction is open."""
    IN_TRANSACTION = auto()
    """Records and offsets are taken."""
    PREPARING = auto()
    """Nothing more is taken; what was taken is being sent. Then it is prepared."""
    PREPARED = auto()
    """All of it is acknowledged, and it stays open until somebody ends it, here or elsewhere."""
    COMMITTING = auto()
    """What was taken is being sent, or the coordinator is asked to commit: for as long as it takes."""
    ABORTING = auto()
    """What was not written has failed, what is in flight is awaited, or the coordinator is asked to abort."""
    ABORTABLE = auto()
    """Something of it has failed, and all that can be done with it is to abort it."""
    FATAL = auto()
    """Nothing can be done with this producer but to close it: another one has its id, say."""


class TransactionEvent(IntEnum):
    """What can happen to it."""

    INITIALIZE = auto()
    """The producer starts, or continues in another cluster."""
    INITIALIZED = auto()
    """The coordinator has answered with a producer id and an epoch."""
    BEGIN = auto()
    """The user begins a transaction; no request tells of that."""
    PREPARE = auto()
    """The user wants it ended elsewhere."""
    SETTLED = auto()
    """Everything that was taken is acknowledged."""
    COMMIT = auto()
    """The user wants it committed."""
    ABORT = auto()
    """The user wants it aborted."""
    ENDED = auto()
    """The coordinator has it down as ended, or there was nothing to end."""
    BUMP = auto()
    """Likewise, and the next one needs another epoch (KIP-360)."""
    FAIL = auto()
    """A record or its offsets have failed: it must not be committed."""
    FAIL_FATALLY = auto()
    """The cluster will have nothing to do with this producer any more."""


_S, _E = TransactionState, TransactionEvent

TRANSITIONS: Mapping[tuple[TransactionState, TransactionEvent], TransactionState] = {
    (_S.UNINITIALIZED, _E.INITIALIZE): _S.INITIALIZING,
    (_S.INITIALIZING, _E.INITIALIZED): _S.READY,
    (_S.READY, _E.INITIALIZE): _S.INITIALIZING,
    (_S.READY, _E.BEGIN): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _E.PREPARE): _S.PREPARING,
    (_S.IN_TRANSACTION, _E.COMMIT): _S.COMMITTING,
    (_S.IN_TRANSACTION, _E.ABORT): _S.ABORTING,
    (_S.IN_TRANSACTION, _E.FAIL): _S.ABORTABLE,
    (_S.PREPARING, _E.SETTLED): _S.PREPARED,
    (_S.PREPARING, _E.COMMIT): _S.COMMITTING,
    (_S.PREPARING, _E.ABORT): _S.ABORTING,
    (_S.PREPARING, _E.FAIL): _S.ABORTABLE,
    (_S.PREPARED, _E.COMMIT): _S.COMMITTING,
    (_S.PREPARED, _E.ABORT): _S.ABORTING,
    (_S.COMMITTING, _E.ENDED): _S.READY,
    (_S.COMMITTING, _E.BUMP): _S.INITIALIZING,
    (_S.COMMITTING, _E.FAIL): _S.ABORTABLE,
    (_S.ABORTABLE, _E.ABORT): _S.ABORTING,
    (_S.ABORTABLE, _E.FAIL): _S.ABORTABLE,
    (_S.ABORTING, _E.FAIL): _S.ABORTING,
    (_S.ABORTING, _E.ENDED): _S.READY,
    (_S.ABORTING, _E.BUMP): _S.INITIALIZING,
    **{(state, _E.FAIL_FATALLY): _S.FATAL for state in _S},
}

OPEN = frozenset({_S.IN_TRANSACTION, _S.PREPARING, _S.PREPARED, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE})
"""A transaction has begun, and has not ended."""
SENDING = frozenset({_S.IN_TRANSACTION, _S.PREPARING, _S.COMMITTING})
"""What waits for its first attempt is sent."""
