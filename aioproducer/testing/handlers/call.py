"""What a handler is told beside the request."""

from __future__ import annotations

from dataclasses import dataclass

from aioproducer.testing.faults import Strike
from aioproducer.testing.sasl.session import Session
from aioproducer.testing.state import ClusterState


@dataclass(frozen=True, slots=True)
class Call:
    """Which node is asked, in which version, by whom, and which of the script's faults struck."""

    state: ClusterState
    node_id: int
    version: int
    strike: Strike
    session: Session
