"""ListTransactions: the transactional ids that one broker coordinates; each knows its own, so all are asked.

KIP-664, KIP-994 (v1: how long they have been open), KIP-1152 (v2: a pattern, which has to match the whole id).
"""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, message
from aioproducer._core.protocol.types import INT16, INT32, INT64, NULLABLE_STRING, STRING, array_of


@struct
class TransactionState:
    """One id, in short."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


@message(api_key=66, versions=(0, 2), flexible_from=0, client_pauses_from=0, large=True)
class ListTransactionsResponse(Message):
    """The ids that all filters let through; a state that the broker does not know is told, and matches nothing."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    unknown_state_filters: list[str] = field(array_of(STRING), factory=list)
    transaction_states: list[TransactionState] = field(array_of(TransactionState), factory=list)


@message(api_key=66, versions=(0, 2), flexible_from=0)
class ListTransactionsRequest(Request[ListTransactionsResponse]):
    """List ids by state, producer id, age in milliseconds and name; an empty list is no filter, nor are -1 and None."""

    state_filters: list[str] = field(array_of(STRING), factory=list)
    producer_id_filters: Sequence[int] = field(array_of(INT64), default=())
    duration_filter: int = field(INT64, since=1, default=-1)
    transactional_id_pattern: str | None = field(NULLABLE_STRING, since=2, default=None)
