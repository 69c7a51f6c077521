"""Names of the options of Kafka's own clients, from the newest kafka-clients jar.

To move to another release: change VERSION, then `python -m tests.kafka.apache.client_names` rewrites clients.lock.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.kafka.apache.jars import fetched, pin

VERSION: Final = "4.4.0"
LOCK: Final = Path(__file__).with_name("clients.lock")
WHAT: Final = f"the clients of Apache Kafka {VERSION}"
CONFIGS: Final = {
    "producer": "org/apache/kafka/clients/producer/ProducerConfig",
    "consumer": "org/apache/kafka/clients/consumer/ConsumerConfig",
    "admin": "org/apache/kafka/clients/admin/AdminClientConfig",
}
SHARED: Final = ("org/apache/kafka/common/config/SaslConfigs", "org/apache/kafka/common/config/SslConfigs")
OF_BROKERS: Final = {"ssl.client.auth"}
"""Names in the shared classes that no client has."""
_NAME: Final = re.compile(r"[a-z0-9]+(?:\.[a-z0-9]+)+")
_SIZES: Final = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
"""Bytes of each kind of constant except text (JVM specification, 4.4)."""
_TEXT, _STRING, _TWO_SLOTS = 1, 8, (5, 6)


def client_names(client: str) -> set[str]:
    """Return the dotted options of a Kafka client: producer, consumer or admin; also those that it does not document.

    Each class defines its options with string constants, so the constant pool contains the names.
    """
    (jar,) = fetched(LOCK, WHAT, print)
    with zipfile.ZipFile(jar) as archive:
        pools = [_strings(archive.read(f"{name}.class")) for name in (CONFIGS[client], *SHARED)]
    return {text for pool in pools for text in pool if _NAME.fullmatch(text)} - OF_BROKERS


def _strings(data: bytes) -> Iterator[str]:
    """Yield the string constants of a class file."""
    (count,) = struct.unpack_from(">H", data, 8)
    texts: dict[int, str] = {}
    strings: list[int] = []
    at, number = 10, 1
    while number < count:
        tag = data[at]
        (word,) = struct.unpack_from(">H", data, at + 1)
        if tag == _TEXT:
            texts[number] = data[at + 3 : at + 3 + word].decode("utf-8", "replace")
            at += 3 + word
        else:
            if tag == _STRING:
                strings.append(word)
            at += 1 + _SIZES[tag]
        number += 2 if tag in _TWO_SLOTS else 1
    return (texts[each] for each in strings)


if __name__ == "__main__":
    pin([f"org.apache.kafka:kafka-clients:{VERSION}"], LOCK, WHAT, "tests.kafka.apache.client_names")
