"""Settings of the intake floor, in seconds, and the user's code."""

# ruff: noqa: I002 - else typing compiles each annotation of a NamedTuple, for which every process waits

from collections.abc import Callable
from typing import NamedTuple

from aioproducer._core.observer import InterceptorChain
from aioproducer._core.partitioning import Partitioner
from aioproducer.serializers import AnySerializer


class IntakeSettings(NamedTuple):
    """What happens to a record before it is appended. Durations in seconds."""

    key_serializer: AnySerializer | None
    value_serializer: AnySerializer | None
    partitioner: Partitioner
    interceptors: InterceptorChain
    max_block_s: float
    """Maximum time that a call waits for metadata, async serializers and memory together."""
    on_refused: Callable[[int, BaseException], None]
    """Told how many records have failed before they were appended, and of what."""
