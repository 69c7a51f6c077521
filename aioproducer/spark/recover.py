"""The operator's view of what Spark has decided and could not commit: what is lost, and to confirm it.

It is `aioproducer spark-recover`. What is decided and still open is committed by that.
"""

from __future__ import annotations

from collections.abc import Mapping

from aioproducer.spark.decision_protocol import End, check_log, missing
from aioproducer.spark.decision_records import Share
from aioproducer.spark.delivery import DeliveryError, ExactlyOnce, Guarantee
from aioproducer.spark.kafka_port import KafkaPort
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.worker import worker

HOW: Mapping[End, str] = {End.LOST: "lost", End.UNTOLD: "perhaps lost, nobody can tell any more"}


def recover(options: Mapping[str, str], prefix: str, *, confirm: bool) -> tuple[str, bool]:
    """Return the losses of the queries and jobs under *prefix*, and whether they may go on.

    Raises: ConfigError, DeliveryError, ProducerError.
    """
    settings = ProducerSettings(tuple(sorted(options.items())))
    settings.config()  # what is wrong with it is said first
    delivery = ExactlyOnce(Guarantee.LOG, prefix, None)
    reason, found = worker().ask(settings, prefix, lambda kafka: _losses(kafka, delivery, confirm=confirm))
    if not found and not reason:
        return "nothing is lost", True
    lines = [reason] if reason else []
    for name, (number, ends) in found.items():
        lines.append(f"batch {number} of {name}: {len(ends)} transactions are not committed")
        lines += [
            f"  {share.transactional_id}: {HOW[end]}: {share.topic}-{share.partition} up to offset"
            f" {share.last_offset}, and what it wrote elsewhere"
            for share, end in ends.items()
        ]
    lines.append(
        "confirmed: the query goes on behind it" if confirm else "--confirm lets the query go on behind it"
    )
    return "\n".join(lines), confirm


async def _losses(
    kafka: KafkaPort, delivery: ExactlyOnce, *, confirm: bool
) -> tuple[str, Mapping[str, tuple[int, Mapping[Share, End]]]]:
    """Return the reason why decisions can be lost, if they can, and the transactions that are not committed."""
    reason = ""
    try:
        await check_log(kafka, delivery)
    except DeliveryError as error:
        reason = str(error)
    return reason, await missing(kafka, delivery, confirm=confirm)
