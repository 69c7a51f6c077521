"""Topics with records for partitions that the cluster lacks."""

from __future__ import annotations

from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit.floor_rig import NODE, TOPIC, FloorRig


@in_virtual_time
async def test_topic_is_shrunk_until_its_partitions_return() -> None:
    rig = FloorRig(partitions=2)
    batch = rig.fill(partition=1)
    assert rig.accumulator.shrunk == set()
    rig.accumulator.update_topic(TOPIC, [NODE])
    assert rig.accumulator.shrunk == rig.accumulator.shrunk_topics() == {TOPIC}
    rig.accumulator.update_topic(TOPIC, [NODE, NODE])
    assert rig.accumulator.shrunk == rig.accumulator.shrunk_topics() == set()
    assert rig.drain() == [batch]


@in_virtual_time
async def test_shrunk_topics_have_unsent_records() -> None:
    rig = FloorRig(partitions=2)
    batch, _ = rig.sent(partition=1)
    rig.accumulator.update_topic(TOPIC, [NODE])
    assert rig.accumulator.shrunk == {TOPIC}
    assert rig.accumulator.shrunk_topics() == set(), "the batch is in flight"
    rig.completion.complete(batch, 0)


@in_virtual_time
async def test_forgotten_topic_is_no_longer_shrunk() -> None:
    rig = FloorRig(partitions=2)
    _ = rig.queue(1)
    rig.accumulator.update_topic(TOPIC, [NODE])
    assert rig.accumulator.shrunk == {TOPIC}
    rig.accumulator.update_topic(TOPIC, [])
    assert (rig.accumulator.shrunk, rig.accumulator.topics) == (set(), {})
