"""Settings of the network floor, in seconds and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from aioproducer.backoff import Backoff


class ConnectionSettings(NamedTuple):
    """Durations in seconds, sizes in bytes."""

    client_id: str | None
    """What brokers call us in their logs and quotas."""
    request_timeout_s: float
    """A connection whose oldest request has waited this long for its answer is closed."""
    setup_timeout_s: float
    """How long dialling and the handshake may take together; doubles with each failed attempt in a row…"""
    setup_timeout_max_s: float
    """… up to this (KIP-601)."""
    idle_timeout_s: float | None
    """Close a connection that was not used for this long; None or 0 never does."""
    reconnect_backoff: Backoff
    """How long a node is left alone after a failed attempt, or a lost connection."""
    send_buffer_bytes: int
    """SO_SNDBUF; -1 leaves it to the operating system."""
    receive_buffer_bytes: int
    """SO_RCVBUF; -1 leaves it to the operating system."""
    max_response_bytes: int = 100 * 1024 * 1024
    """A frame that announces more than this is garbage, not an answer."""
    version_caps: Mapping[int, int] = MappingProxyType({})
    """Per API key, the highest version to use although we know higher ones."""
