"""Settings of the metadata floor."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.backoff import Backoff
from aioproducer.net.address import Address


class MetadataSettings(NamedTuple):
    """Durations in seconds."""

    bootstrap: tuple[Address, ...]
    """Whom to ask first, and when no known broker can be reached."""
    max_age_s: float
    """Ask again when the last complete answer is this old."""
    max_idle_s: float
    """A topic that was not used for this long is forgotten."""
    backoff: Backoff
    """How long to wait before asking again for what the last answer did not tell."""
    request_timeout_s: float
    """How long an attempt to reach any known broker may take."""
    rebootstrap: bool
    """Whether to start over from the bootstrap addresses when no known broker can be reached (KIP-899)…"""
    rebootstrap_trigger_s: float
    """… or when none has answered for this long, or when one says so (KIP-1102)."""
    allow_auto_create_topics: bool = True
    """Whether asking for a topic may create it, if the cluster allows."""
