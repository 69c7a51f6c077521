from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.batching.bulk import SendManyCall
from aioproducer._core.intake.preparing import CHECK_EVERY, USER_CODE_SLICE_S, Preparing
from aioproducer._core.partitioning import CallablePartitioner
from aioproducer.errors import ProducerError
from aioproducer.serializers import HeaderList
from aioproducer.testing import in_virtual_time
from aioproducer.types import ProducerRecord
from tests.cases import for_each
from tests.unit._core.intake.intake_rig import Rig as IntakeRig, Spy, checked
from tests.unit._core.intake.slow import (
    SLOW_S,
    SlowInContext,
    SlowInterceptor,
    slow_choice,
    slow_serializer,
    work,
)
from tests.unit.floor_rig import TOPIC

MANY = 4096
IN_A_STINT = 152
"""So many slow ones take a stint, and are a multiple of `CHECK_EVERY`."""


class Rig(IntakeRig):
    """Rig with the preparation of the rows of one call."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.preparing = Preparing(self.intake, accumulator=self.accumulator)
        self.call = SendManyCall(TOPIC, MANY, self.loop)


def test_constants_of_these_tests_match_the_module() -> None:
    assert IN_A_STINT % CHECK_EVERY == 0
    assert IN_A_STINT - CHECK_EVERY < USER_CODE_SLICE_S / SLOW_S <= IN_A_STINT


@for_each(
    "settings",
    [
        {"value_serializer": slow_serializer},
        {"key_serializer": slow_serializer},
        {"value_serializer": SlowInContext()},
        {"interceptors": [SlowInterceptor()]},
    ],
)
@in_virtual_time
async def test_slow_code_sees_as_many_records_as_there_is_time_for(settings: dict[str, Any]) -> None:
    rig = Rig(**settings)
    names = [f"{number}" for number in range(MANY)]
    rows = checked(
        names if "value_serializer" in settings else [b"v"] * MANY,
        keys=names if "key_serializer" in settings else None,
        serialized_later=(True, True),
    )
    prepared, taken = rig.preparing.prepared(rows, rig.call)
    assert taken == len(prepared) == len(prepared.sizes) == IN_A_STINT
    assert rig.loop.time() == pytest.approx(IN_A_STINT * SLOW_S)
    if "value_serializer" in settings:
        assert list(prepared.values) == [name.encode() for name in names[:IN_A_STINT]]
    assert list(prepared.positions) == list(range(IN_A_STINT))


@in_virtual_time
async def test_slow_serializers_behind_an_interceptor_count_as_well() -> None:
    rig = Rig(interceptors=[SlowInterceptor()], value_serializer=slow_serializer)
    prepared, taken = rig.preparing.prepared(checked(["v"] * MANY, serialized_later=(True, True)), rig.call)
    assert taken == len(prepared)
    assert IN_A_STINT // 2 <= taken <= IN_A_STINT // 2 + CHECK_EVERY
    assert prepared.values[-1] == b"v"


@in_virtual_time
async def test_failing_records_count_towards_the_time_limit() -> None:
    def fail(value: object) -> bytes:
        work()
        raise LookupError(value)

    spy = Spy()
    rig = Rig(value_serializer=fail, interceptors=[spy])
    prepared, taken = rig.preparing.prepared(checked(["v"] * MANY, serialized_later=(True, True)), rig.call)
    assert (taken, len(prepared)) == (IN_A_STINT, 0)
    assert list(rig.call.result.failures) == list(range(IN_A_STINT))
    assert len(spy.seen) == len(spy.errors) == IN_A_STINT


@in_virtual_time
async def test_slow_serializer_prepares_at_least_some_records() -> None:
    rig = Rig(value_serializer=lambda _: work(1.0))
    _, taken = rig.preparing.prepared(checked(["v"] * MANY, serialized_later=(True, True)), rig.call)
    assert taken == CHECK_EVERY


@in_virtual_time
async def test_code_that_is_quick_sees_all() -> None:
    rig = Rig(value_serializer=str.encode)
    prepared, taken = rig.preparing.prepared(checked(["v"] * MANY, serialized_later=(True, True)), rig.call)
    assert taken == len(prepared) == MANY


@in_virtual_time
async def test_slow_partitioner_is_called_only_within_the_time_limit() -> None:
    rig = Rig(partitions=2, partitioner=CallablePartitioner(slow_choice))
    queues = rig.accumulator.topics[TOPIC]
    rows, taken = rig.preparing.prepared(checked([b"%d" % number for number in range(MANY)]), rig.call)
    assert taken == MANY
    [(queue, group)], taken = rig.preparing.grouped(queues, rows, rig.call)
    assert queue is queues[1]
    assert taken == IN_A_STINT
    assert list(group.values) == [b"%d" % number for number in range(IN_A_STINT)]


@in_virtual_time
async def test_failed_records_need_no_partition() -> None:
    rig = Rig(max_request_bytes=1_000)
    rows, taken = rig.preparing.prepared(checked([b"x" * 1_000] * 3), rig.call)
    assert (len(rows), taken) == (0, 3)
    assert rig.preparing.grouped(rig.accumulator.topics[TOPIC], rows, rig.call) == ([], 0)


@in_virtual_time
async def test_columns_are_kept_if_no_record_has_to_be_inspected() -> None:
    rig = Rig(value_serializer=str.encode)
    rows, _ = rig.preparing.prepared(
        checked(["v"] * 3, headers=[{"h": b"1"}] * 3, serialized_later=(True, True)), rig.call
    )
    assert rows.keys is None
    assert type(rows.headers).__name__ == "HeaderColumns"


@in_virtual_time
async def test_interceptors_receive_failures_of_changed_records() -> None:
    def change(record: ProducerRecord) -> ProducerRecord:
        record.partition = 1
        return record

    def fail(_: object) -> bytes:
        raise LookupError

    spy = Spy(change)
    rig = Rig(partitions=2, value_serializer=fail, interceptors=[spy])
    rig.preparing.prepared(checked(["v"], serialized_later=(True, True)), rig.call)
    [(error, where)] = spy.errors
    assert isinstance(error, ProducerError)
    assert where == (TOPIC, 1)


LATER = "later"


def at_times(value: str) -> Any:
    """Serialize *value*; return an awaitable for `LATER`."""

    async def encode() -> bytes:
        return value.encode()

    return encode() if value == LATER else value.encode()


class AtTimes:
    def serialize(self, topic: str, headers: HeaderList, value: str) -> Any:
        return at_times(value)


@for_each(
    ("settings", "keys", "field", "key"),
    [
        ({"value_serializer": at_times}, None, "value", None),
        ({"value_serializer": at_times}, [b"a", b"b", b"c"], "value", b"b"),
        ({"value_serializer": at_times, "key_serializer": str.encode}, ["a", "b", "c"], "value", b"b"),
        ({"value_serializer": str.encode, "key_serializer": at_times}, ["a", LATER, "c"], "key", None),
        ({"value_serializer": AtTimes(), "key_serializer": str.encode}, ["a", "b", "c"], "value", b"b"),
    ],
)
@pytest.mark.parametrize("interceptors", [0, 1])
@in_virtual_time
async def test_preparation_ends_at_an_awaitable(
    interceptors: int, settings: dict[str, Any], keys: list[Any] | None, field: str, key: bytes | None
) -> None:
    spies = [Spy() for _ in range(interceptors)]
    rig = Rig(interceptors=spies, **settings)
    given = ["first", LATER if field == "value" else "second", "third"]
    rows = checked(given, keys=keys, serialized_later=(True, True))
    prepared, taken = rig.preparing.prepared(rows, rig.call)
    assert (taken, list(prepared.values)) == (1, [b"first"])
    assert keys is None or list(prepared.keys or ()) == [b"a"]
    record, waits = rig.preparing.begun or pytest.fail("no record has begun")
    assert waits is not None
    waits.discard()
    assert (record.value, waits.field) == (given[1], field)
    assert field == "key" or waits.key == key
    assert [[each.value for each in spy.seen] for spy in spies] == [given[:2]] * interceptors
    assert not rig.call.result.failures
