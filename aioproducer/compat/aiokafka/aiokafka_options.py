"""aiokafka's options in ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from aioproducer._core.batching.batching_settings import BatchingSettings
from aioproducer.config import ProducerConfig

DEFAULT_PORT: Final = 9092
"""The port of a server that is given without one."""

NEVER_MS: Final = 2**31 - 1
"""24 days: an idempotent producer of aiokafka's waits for ever for the end of a transaction."""

BUFFER_MEMORY: Final = 33_554_432
"""Kafka's default. aiokafka has no such limit, so it is raised where it would refuse records."""


class _KeepsTrying(ProducerConfig):
    """Of an idempotent producer, which keeps trying; but as long as the delivery may take where a partition has no leader."""

    __slots__ = ()

    def batching_settings(self) -> BatchingSettings:
        return super().batching_settings()._replace(outlives_deadline_if_led=True)


def our_config(
    *,
    bootstrap_servers: str | Sequence[str],
    acks: Any,
    enable_idempotence: bool,
    request_timeout_ms: int,
    max_batch_size: int,
    max_request_size: int,
    linger_ms: float,
    connections_max_idle_ms: int | None,
    transactional_id: str | None = None,
    transaction_timeout_ms: int = 60_000,
    **passed_through: Any,
) -> ProducerConfig:
    """Return the configuration that does what aiokafka's options say; *passed_through* mean the same here.

    There, `request_timeout_ms` bounds three things: the wait before the append, the delivery, and a request.

    Raises: ConfigError (a ValueError).
    """
    if transactional_id is not None:
        enable_idempotence = True
        passed_through |= {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": transaction_timeout_ms,
        }
    if acks is None or type(acks) is object:  # aiokafka's own default, which programs hand on
        acks = "all" if enable_idempotence else 1
    return (_KeepsTrying if enable_idempotence else ProducerConfig)(
        bootstrap_servers=with_ports(bootstrap_servers),
        acks=acks,
        enable_idempotence=enable_idempotence,
        request_timeout_ms=request_timeout_ms,
        max_block_ms=request_timeout_ms,
        delivery_timeout_ms=request_timeout_ms + math.ceil(linger_ms),
        batch_size=max_batch_size,
        max_request_size=max_request_size,
        buffer_memory=max(BUFFER_MEMORY, 2 * max_request_size),
        linger_ms=linger_ms,
        connections_max_idle_ms=-1 if connections_max_idle_ms is None else connections_max_idle_ms,
        **passed_through,
    )


def with_ports(servers: str | Sequence[str]) -> list[str]:
    """Return *servers*, `host[:port]`, each with a port. What is empty, say after a last comma, is left out."""
    each = servers.split(",") if isinstance(servers, str) else servers
    stripped = (server.strip() for server in each)
    return [server if _has_port(server) else f"{server}:{DEFAULT_PORT}" for server in stripped if server]


def _has_port(server: str) -> bool:
    return ":" in server.rpartition("]")[2]
