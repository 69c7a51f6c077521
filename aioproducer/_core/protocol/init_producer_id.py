"""InitProducerId: the id and epoch under which an idempotent producer numbers its batches.

KIP-98, KIP-482 (v2: flexible), KIP-360 (v3: carry on from the current id and epoch), KIP-588 (v4: PRODUCER_FENCED),
KIP-890 (v5: TRANSACTION_ABORTABLE), KIP-939 (v6, which few brokers offer: transactions without a timeout).
"""

from __future__ import annotations

from aioproducer._core.protocol.fields import field
from aioproducer._core.protocol.schema import Message, Request, check_range, checked_by, message
from aioproducer._core.protocol.types import BOOL, INT16, INT32, INT64, NULLABLE_STRING


@message(api_key=22, versions=(0, 6), flexible_from=2, client_pauses_from=1)
class InitProducerIdResponse(Message):
    """The id and epoch, or an error."""

    throttle_time_ms: int = field(INT32, ignorable=True, default=0)
    error_code: int = field(INT16, default=0)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
    ongoing_txn_producer_id: int = field(INT64, since=6, default=-1)
    ongoing_txn_producer_epoch: int = field(INT16, since=6, default=-1)


@checked_by(InitProducerIdResponse)
def _check(answer: InitProducerIdResponse) -> None:
    lowest = -1 if answer.error_code else 0
    check_range("producer_id", answer.producer_id, lowest)
    check_range("producer_epoch", answer.producer_epoch, lowest)
    check_range("ongoing_txn_producer_id", answer.ongoing_txn_producer_id, -1)
    check_range("ongoing_txn_producer_epoch", answer.ongoing_txn_producer_epoch, -1)


@message(api_key=22, versions=(0, 6), flexible_from=2)
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """A *transactional_id* of None asks for idempotence alone; -1 for *producer_id* and *_epoch* for new ones.

    With *enable2_pc* the transactions have no timeout: whoever decides on them may take a while.
    """

    transactional_id: str | None = field(NULLABLE_STRING)
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, since=3, default=-1)
    producer_epoch: int = field(INT16, since=3, default=-1)
    enable2_pc: bool = field(BOOL, since=6, default=False)
    keep_prepared_txn: bool = field(BOOL, since=6, default=False)
