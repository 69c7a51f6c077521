"""The operator's view of what Spark has decided and could not commit: what is lost, and to confirm it.

It is `aioproducer spark-recover`. What is decided and still open is committed by that.
"""

from __future__ import annotations

from collections.abc import Mapping

from aioproducer.spark.decision_protocol import End, missing
from aioproducer.spark.delivery import ExactlyOnce, Guarantee
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.worker import worker

HOW: Mapping[End, str] = {End.LOST: "lost", End.UNTOLD: "perhaps lost, nobody can tell any more"}


def recover(options: Mapping[str, str], prefix: str, *, confirm: bool) -> tuple[str, bool]:
    """Return what is to be told of the queries and jobs under *prefix*, and whether they may go on.

    Raises: ConfigError, DeliveryError, ProducerError.
    """
    settings = ProducerSettings(tuple(sorted(options.items())))
    settings.config()  # what is wrong with it is said first
    delivery = ExactlyOnce(Guarantee.LOG, prefix, None)
    found = worker().ask(settings, prefix, lambda kafka: missing(kafka, delivery, confirm=confirm))
    if not found:
        return "nothing is lost", True
    lines = []
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
