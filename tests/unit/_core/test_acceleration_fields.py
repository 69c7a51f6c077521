"""Fields of the append path in C."""

from __future__ import annotations

from typing import Any

from aioproducer._core import acceleration
from aioproducer._core.batching.admission import AppendLock, MemoryBudget
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.clock import LoopClock
from tests.cases import for_each

CLASSES: list[tuple[type[Any], type[Any]]] = [
    (AppendLock, acceleration.PythonLockFields),
    (Batch, acceleration.PythonBatchFields),
    (LoopClock, acceleration.PythonClockFields),
    (MemoryBudget, acceleration.PythonMemoryFields),
    (PartitionQueue, acceleration.PythonQueueFields),
    (TopicQueues, acceleration.PythonTopicFields),
]


@for_each(("kind", "fields"), CLASSES)
def test_class_declares_no_field_of_its_base(kind: Any, fields: Any) -> None:
    """A slot of the class would hide the field from the code in C."""
    assert not set(kind.__slots__) & set(fields.__slots__)


@for_each(("kind", "fields"), CLASSES)
def test_base_has_the_fields_of_its_twin(kind: Any, fields: Any) -> None:
    base = next(each for each in kind.__mro__ if each.__name__ in {fields.__name__, fields.__name__[6:]})
    assert set(fields.__slots__) <= set(vars(base))
