"""The life of a batch, as a table of legal moves.

`docs/design.md` draws its diagram from `LEGAL`; a test keeps the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto


class BatchState(IntEnum):
    """Where a batch is in its life.

    Ints are hashed without a call of Python, and every batch moves three times.
    """

    OPEN = auto()
    """Taking records."""
    SEALED = auto()
    """Takes no more records; it holds no sequence, or one that the broker refused and that is void."""
    IN_FLIGHT = auto()
    """Drained: encoded, written or about to be, waiting for its answer; it holds its sequence."""
    BACKOFF = auto()
    """Waiting to be sent again, under the sequence it has."""
    ABANDONED = auto()
    """Its records have failed, but the request is still out and the sequence still taken."""
    DELIVERED = auto()
    """Acknowledged."""
    SPLIT = auto()
    """Too large for the broker; its children have taken over."""
    FAILED = auto()
    """Failed for good."""


_S = BatchState

LEGAL: Mapping[BatchState, frozenset[BatchState]] = {
    _S.OPEN: frozenset({_S.SEALED, _S.FAILED}),
    _S.SEALED: frozenset({_S.IN_FLIGHT, _S.FAILED}),
    _S.IN_FLIGHT: frozenset({_S.DELIVERED, _S.BACKOFF, _S.SEALED, _S.SPLIT, _S.ABANDONED, _S.FAILED}),
    _S.BACKOFF: frozenset({_S.IN_FLIGHT, _S.SEALED, _S.FAILED}),
    _S.ABANDONED: frozenset({_S.DELIVERED, _S.FAILED}),
    _S.DELIVERED: frozenset(),
    _S.SPLIT: frozenset(),
    _S.FAILED: frozenset(),
}

RESOLVED = frozenset({_S.DELIVERED, _S.SPLIT, _S.FAILED, _S.ABANDONED})
"""Nobody waits for a batch in one of these any more."""
