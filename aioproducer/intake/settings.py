"""What the intake floor needs to know."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.cluster.partitioner import Partitioner
from aioproducer.interceptors import InterceptorChain
from aioproducer.serializers import Serializer


class IntakeSettings(NamedTuple):
    """What happens to a record before it is appended. Durations in seconds."""

    key_serializer: Serializer | None
    value_serializer: Serializer | None
    partitioner: Partitioner
    interceptors: InterceptorChain
    max_block_s: float
    """How long a call may wait for metadata and memory together."""
