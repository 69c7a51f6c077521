"""FindCoordinator: the broker that looks after a consumer group or a transactional id.

KIP-98 (v1: key types), KIP-482 (v3: flexible), KIP-699 (v4: many keys at once), KIP-890 (v5:
TRANSACTION_ABORTABLE), KIP-932 (v6: a third type of key).
"""

from __future__ import annotations

from typing import Final

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, check_address, checked_by, message
from aioproducer._core.protocol.types import INT8, INT16, INT32, NULLABLE_TEXT, STRING, array_of

GROUP: Final = 0
TRANSACTION: Final = 1
"""Types of keys."""


@struct
class Coordinator:
    """The coordinator of one key."""

    key: str = field(STRING)
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(NULLABLE_TEXT, ignorable=True, default="")


@message(api_key=10, versions=(0, 6), flexible_from=3, client_pauses_from=2, large=True)
class FindCoordinatorResponse(Message):
    """One coordinator up to v3, an array of them after that."""

    throttle_time_ms: int = field(INT32, since=1, ignorable=True, default=0)
    error_code: int = field(INT16, until=3, default=0)
    error_message: str | None = field(NULLABLE_TEXT, since=1, until=3, ignorable=True, default="")
    node_id: int = field(INT32, until=3, default=0)
    host: str = field(STRING, until=3, default="")
    port: int = field(INT32, until=3, default=0)
    coordinators: list[Coordinator] = field(array_of(Coordinator), since=4, factory=list)


@checked_by(FindCoordinatorResponse)
def _check(answer: FindCoordinatorResponse) -> None:
    found: list[Coordinator | FindCoordinatorResponse] = [answer, *answer.coordinators]
    for each in found:
        check_address(each.node_id, each.port, -1 if each.error_code else 0)


@message(api_key=10, versions=(0, 6), flexible_from=3)
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Ask for the coordinator of one key up to v3, of many after that."""

    key: str = field(STRING, until=3, default="")
    key_type: int = field(INT8, since=1, default=GROUP)
    coordinator_keys: list[str] = field(array_of(STRING), since=4, factory=list)
