"""The place of aiokafka's consumer in its group, which it tells nobody: for offsets that belong to a transaction (KIP-447)."""

from __future__ import annotations

from typing import Any, Final

from aioproducer._core.steps import Log
from aioproducer._core.transactions.transaction_types import GroupMetadata

log: Final = Log(__name__)

KNOWN: Final = ("0.11.", "0.12.", "0.13.", "0.14.")
"""The releases of aiokafka whose coordinator was looked at; `tests/kafka` has the newest."""


def group_metadata_of(consumer: Any) -> GroupMetadata:
    """Return who *consumer*, an AIOKafkaConsumer with a `group_id`, is in its group now.

        group = group_metadata_of(consumer)          # before the records are fetched
        records = await consumer.getmany(timeout_ms=1000)
        ...
        await producer.send_offsets_to_transaction(offsets, group)

    Take it before the records: aiokafka rebalances in the background, and who asks afterwards may be told of a
    generation in which the records are another's. With one of before, the group refuses the offsets.

    While the consumer is not a member, since the group is just being rebalanced, what is returned is refused by the
    group, too. A consumer that was assigned its partitions by hand is no member, and nobody is checked.

    It reads what aiokafka does not publish. Of a release that is not known it reads nothing: then this is the group's
    name alone, a warning is logged, and nobody checks whether the consumer still is a member.

    Raises: ValueError: the consumer has no group, or is not started.
    """
    group_id = getattr(consumer, "_group_id", None)
    if group_id is None:
        raise ValueError(
            "the consumer has no group_id, so there is no group whose offsets could be committed"
        )
    version = _version()
    if not version.startswith(KNOWN):
        log.warning("compat.group_unchecked group=%s aiokafka=%s", group_id, version)
        return GroupMetadata(group_id)
    coordinator = consumer._coordinator  # noqa: SLF001 - what this is here for
    if coordinator is None:
        raise ValueError("the consumer is not started, so that nobody knows who it is in its group")
    if not consumer._subscription.partitions_auto_assigned():  # noqa: SLF001
        return GroupMetadata(group_id)
    instance_id = consumer._group_instance_id  # noqa: SLF001
    # Below 0 the group would check nothing.
    return GroupMetadata(group_id, max(coordinator.generation, 0), coordinator.member_id, instance_id)


def _version() -> str:
    import aiokafka  # noqa: PLC0415 - who has its consumer has it

    return str(aiokafka.__version__)
