"""Log records on a real Kafka: other clients read each of them once, in order per thread."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable

from aioproducer.contrib.logging import KafkaHandler
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka

EACH = 500


def test_threads_deliver_their_log_records_in_order(
    kafka: ApacheKafka, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(1)
    handler = KafkaHandler(topic, kafka.bootstrap_servers, compression_type="gzip", close_timeout_s=30)
    logger = logging.getLogger("shop")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)

    def work(name: int) -> None:
        for number in range(EACH):
            logger.info("order placed", extra={"thread_name": name, "number": number})

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logger.removeHandler(handler)
    handler.close()
    assert handler.dropped == 0
    found = [json.loads(each.value or b"") for each in read_with_librdkafka(kafka.bootstrap_servers, topic)]
    assert len(found) == 4 * EACH
    for name in range(4):
        assert [each["number"] for each in found if each["thread_name"] == name] == list(range(EACH))
