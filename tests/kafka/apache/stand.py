"""A broker of one transaction version, behind a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.kafka.apache.broker import ApacheKafka, free_ports
from tests.kafka.apache.proxy import Proxy


class Stand(NamedTuple):
    """A broker of one transaction version, whom everybody reaches through a proxy."""

    version: int
    kafka: ApacheKafka
    proxy: Proxy

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"


@contextmanager
def stand_of(version: int) -> Iterator[Stand]:
    """Run a broker of that transaction version, and a proxy before it."""
    port, broker_port = free_ports(2)
    properties: dict[str, str | int] = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "auto.create.topics.enable": "false",
        "group.min.session.timeout.ms": 500,  # so that a group soon goes on without a member that was killed
    }
    kafka = ApacheKafka(transaction_version=version, ports={1: broker_port}, properties=properties)
    with Proxy(port, broker_port) as proxy, kafka:
        kafka.create_topic("in", 1)
        yield Stand(version, kafka, proxy)
