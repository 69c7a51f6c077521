"""DescribeTransactions: the state that a coordinator has of its transactional ids (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, message
from aioproducer._core.protocol.types import INT16, INT32, INT64, STRING, array_of


@struct
class TopicData:
    """The partitions of one topic that are in the transaction."""

    topic: str = field(STRING)
    partitions: Sequence[int] = field(array_of(INT32))


@struct
class TransactionState:
    """One id's transaction; *transaction_start_time_ms* is -1 if there is none."""

    error_code: int = field(INT16, default=0)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING, default="")
    transaction_timeout_ms: int = field(INT32, default=0)
    transaction_start_time_ms: int = field(INT64, default=0)
    producer_id: int = field(INT64, default=0)
    producer_epoch: int = field(INT16, default=0)
    topics: list[TopicData] = field(array_of(TopicData), factory=list)


@message(api_key=65, versions=(0, 0), flexible_from=0, client_pauses_from=0, large=True)
class DescribeTransactionsResponse(Message):
    """The states, or an error for each id that has none."""

    throttle_time_ms: int = field(INT32, default=0)
    transaction_states: list[TransactionState] = field(array_of(TransactionState))


@message(api_key=65, versions=(0, 0), flexible_from=0)
class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    """Describe these ids; their coordinator is asked."""

    transactional_ids: list[str] = field(array_of(STRING))
