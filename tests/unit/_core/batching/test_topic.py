from __future__ import annotations

import gc
import sys
from collections import OrderedDict
from functools import partial
from types import MethodType
from typing import Any

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.schedule import SLOW_S, BrokerLatencies
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.idempotence import IdentityKeeper, ProducerIdentity
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer.testing.virtual_time import in_virtual_time
from tests.cases import for_each
from tests.unit._core.batching.append_lock_rig import Call
from tests.unit.floor_rig import FIRST, batching_settings


def no_time() -> float:
    return 0.0


def topic(*leaders: int, latencies: BrokerLatencies | None = None, **settings: Any) -> TopicQueues:
    identities = IdentityKeeper()
    identities.assign(*FIRST)
    queues = TopicQueues(
        "orders",
        batching_settings(**settings),
        identities,
        BrokerLatencies(no_time) if latencies is None else latencies,
    )
    assert queues.update(leaders) == []
    return queues


def test_partition_has_one_queue_with_its_leader() -> None:
    queues = topic(1, 2)
    assert queues[1] is queues[1]
    assert queues[1].leader == 2
    assert queues[9].leader == NO_LEADER


def test_update_returns_the_queues_whose_leader_changed() -> None:
    queues = topic(1, 2, 3)
    kept, moved, gone = queues[0], queues[1], queues[2]
    for each in (kept, moved, gone):
        each.sequences.acknowledged_here = True
    assert queues.update([1, 5]) == [moved, gone]
    assert [each.leader for each in (kept, moved, gone)] == [1, 5, NO_LEADER]
    assert [each.sequences.acknowledged_here for each in (kept, moved, gone)] == [True, False, False]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the collector tracks empty dicts from 3.14 on")
def test_topic_adds_few_objects_for_the_garbage_collector() -> None:
    queues = topic(1, 2)
    _ = queues[0]
    gc.collect()
    own = (queues, queues.append_lock, queues.by_partition)
    referents = [type(each) for each in gc.get_referents(*own) if gc.is_tracked(each)]
    assert not {OrderedDict, MethodType, set}.intersection(referents)


ONE, OTHER = b"1" * 16, b"2" * 16


class TestMissing:
    """Queues of partitions that the cluster does not have."""

    def test_missing_partitions_are_noted_until_they_return(self) -> None:
        queues = topic(1, 1, 1)
        _, last = queues[0], queues[2]
        assert queues.missing is None
        queues.update([1, 1])
        first = queues.missing
        assert first is not None
        assert queues.missing_queues() == [last]
        queues.update([2, 1])
        assert queues.missing is first  # the evidence goes on
        queues.update([1, 1, 1])
        assert queues.missing is None

    def test_partitions_without_records_are_not_missed(self) -> None:
        queues = topic(1, 1, 1)
        _ = queues[0]
        queues.update([1, 1])
        assert queues.missing is None

    def test_topic_that_is_not_known_misses_none(self) -> None:
        queues = topic(1, 1, 1)
        _ = queues[2]
        queues.update([1])
        queues.update([])
        assert queues.missing is None

    @for_each(
        ("ids", "same", "other"),
        [
            ((ONE, ONE), True, False),
            ((ONE, OTHER), False, True),
            ((ONE, OTHER, OTHER), True, True),
            ((ONE, NO_TOPIC_ID), False, False),
            ((NO_TOPIC_ID, NO_TOPIC_ID), False, False),
            ((NO_TOPIC_ID, ONE), False, False),
            ((ONE, NO_TOPIC_ID, OTHER), False, True),
        ],
    )
    def test_topic_ids_are_compared(self, ids: tuple[bytes, ...], same: bool, other: bool) -> None:
        queues = topic()
        queues.update([1, 1, 1], ids[0])
        _ = queues[2]
        for each in ids[1:]:
            queues.update([1, 1], each)
        assert queues.missing is not None
        assert (queues.missing.has_same_id, queues.missing.has_other_id) == (same, other)


def test_partitions_without_a_leader_are_not_available() -> None:
    assert topic(1, NO_LEADER, 1).available == (0, 2)


def test_sticky_partition_switches_among_led_partitions() -> None:
    queues = topic(NO_LEADER, 1, 1)
    one = queues.switch().partition
    assert one in {1, 2}
    for _ in range(20):
        other = queues.switch().partition
        assert {one, other} == {1, 2}
        one = other


def test_only_partition_with_a_leader_stays_sticky() -> None:
    queues = topic(NO_LEADER, 1)
    assert queues.switch() is queues.switch()
    assert queues.sticky is queues[1]


def test_any_partition_may_be_sticky_without_leaders() -> None:
    queues = topic(NO_LEADER, NO_LEADER)
    assert {queues.switch().partition, queues.switch().partition} == {0, 1}


def test_sticky_partition_of_a_deleted_topic_stays() -> None:
    queues = topic()
    assert queues.switch().partition == 0
    queues.update([NO_LEADER, 1])
    assert queues.switch().partition == 1
    queues.update([])
    assert queues.switch().partition == 1


def test_sticky_partition_without_a_leader_is_left() -> None:
    queues = topic(1, NO_LEADER)
    assert queues.switch().partition == 0
    queues.update([NO_LEADER, NO_LEADER])
    assert queues.sticky is queues[0]  # nowhere to go
    queues.update([NO_LEADER, 1])
    assert queues.sticky is queues[1]


def test_lower_limit_applies_to_open_batches() -> None:
    queues = topic(1, 1, batch_bytes=1000, batch_max_bytes=5000)
    for partition, limit in enumerate((1000, 5000)):
        batch = Batch(queues[partition].topic_partition, (1,), created_at=0.0, deadline=1.0, limit=limit)
        queues[partition].open = batch
    refused = Batch(queues[0].topic_partition, (0,), created_at=0.0, deadline=1.0)
    refused.size = 6000
    queues.refused(refused, 3000, 0.0)
    opened = (queues[0].open, queues[1].open)
    assert [batch.limit for batch in opened if batch is not None] == [1000, 3000]
    assert (queues.limits.ready, queues.limits.full) == (1000, 3000)


@pytest.mark.parametrize(("size", "share"), [(900, 1000), (6000, 3000), (2001, 1000)])
def test_share_is_at_least_one_batch_size(size: int, share: int) -> None:
    assert topic(1, NO_LEADER, 1, batch_bytes=1000).share(size) == share
    assert topic(batch_bytes=1000).share(6000) == 6000


@pytest.mark.parametrize("numbered", [True, False])
def test_retired_topic_bumps_the_epoch_it_wrote_under(numbered: bool) -> None:
    identities = IdentityKeeper()
    identities.assign(*FIRST)
    queues = TopicQueues("orders", batching_settings(), identities, BrokerLatencies(no_time))
    sequences = queues[0].sequences
    if numbered:
        assert sequences.may_assign(identities, unsettled=())
    queues.retire()
    assert identities.current == ProducerIdentity(7, int(numbered))


def test_topic_is_idle_without_batches_and_pending_calls() -> None:
    queues = topic(1)
    assert queues.idle
    batch = Batch(queues[0].topic_partition, (1,), created_at=0.0, deadline=1.0)
    queues[0].add(batch)
    assert not queues.idle
    queues[0].remove(batch)
    assert queues.idle
    queues.pending_calls["one"] = None
    assert not queues.idle
    queues.pending_calls.clear()
    assert queues.idle


def test_recreated_topic_is_acknowledged_by_no_leader() -> None:
    """Its logs are empty and accept any first sequence; errors about the old topic id no longer count."""
    queues = topic()
    queue = queues[0]
    assert queues.update([1], b"a" * 16) == [queue]
    for topic_id, acknowledged in ((b"a" * 16, True), (NO_TOPIC_ID, True), (b"b" * 16, False)):
        queue.sequences.acknowledged_here = True
        assert queues.update([1], topic_id) == ([] if acknowledged else [queue])
        assert queue.sequences.acknowledged_here == acknowledged
    assert queues.topic_id == b"b" * 16


@in_virtual_time
async def test_calls_that_wait_for_a_partition_are_admitted_in_order() -> None:
    queues = topic(1)
    made: list[int] = []

    def attempt(number: int) -> bool:
        assert len(queues.leaders) == 3, "it is there by now"
        made.append(number)
        return True

    calls = [Call(partial(attempt, number)) for number in range(4)]
    for call, partition in zip(reversed(calls), (1, 5, 2, 1), strict=True):
        queues.awaiting_partition[call] = partition
    assert queues.update([1]) == []
    assert made == []
    queues.update([1, 1, 1])
    assert made == [0, 1, 3]
    assert list(queues.awaiting_partition.values()) == [5]
    assert queues.append_lock.calls == 0


@pytest.mark.parametrize(("chance", "chosen"), [(0.0, 0), (0.4, 1), (0.99, 2)])
def test_partitions_are_equally_likely_to_be_the_next(
    monkeypatch: pytest.MonkeyPatch, chance: float, chosen: int
) -> None:
    monkeypatch.setattr("random.random", lambda: chance)
    assert topic(1, 1, 1).switch().partition == chosen


def test_partition_picked_again_is_replaced_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    queues = topic(1, 1, 1)
    assert [queues.switch().partition for _ in range(4)] == [0, 1, 0, 1]


def queue_up(queues: TopicQueues, partition: int, size: int, *, out: bool = False) -> Batch:
    queue = queues[partition]
    batch = Batch(queue.topic_partition, queue.next_order(), created_at=0.0, deadline=1.0)
    batch.size = size
    if out:
        queue.in_flight += (batch,)
    else:
        queue.add(batch)
    return batch


class TestSticky:
    def test_sticky_partition_stays_for_one_batch_size_of_bytes(self) -> None:
        queues = topic(1, 1, 1, batch_bytes=1_000)
        sticky = queues.next_sticky(100)
        for _ in range(8):
            assert queues.next_sticky(100) is sticky
            sticky.sealed_bytes += 100
        assert queues.next_sticky(139) is sticky
        assert queues.next_sticky(140) is not sticky

    def test_bytes_appended_before_the_switch_do_not_count(self) -> None:
        queues = topic(1, batch_bytes=1_000)
        queues[0].sealed_bytes = 5_000
        sticky = queues.next_sticky(100)
        sticky.sealed_bytes += 800
        assert queues.next_sticky(139) is sticky
        assert queues._sticky_from == 5_000
        assert queues.next_sticky(140) is sticky, "there is no other"
        assert queues._sticky_from == 5_800

    @pytest.mark.parametrize("out", [False, True])
    def test_switch_chooses_the_partition_with_the_smaller_backlog(self, out: bool) -> None:
        queues = topic(1, 1, batch_bytes=1_000)
        queues.sticky = queues[0]
        queue_up(queues, 1, 1_000, out=out)
        assert queues.switch() is queues[0]
        queue_up(queues, 1, 999, out=out)
        queue_up(queues, 0, 1_000, out=out)
        assert queues.switch() is queues[1], "less than a batch's worth makes no difference"

    def test_switch_compares_every_byte_when_batch_size_is_zero(self) -> None:
        queues = topic(1, 1, batch_bytes=0)
        queues.sticky = queues[0]
        queue_up(queues, 1, 101)
        queue_up(queues, 0, 100)
        assert queues.switch() is queues[0]

    def test_slow_partition_gets_the_fewest_records(self) -> None:
        queues = topic(1, 2, 3, batch_bytes=1_000)
        queue_up(queues, 2, 5_000)
        assert {queues.switch().partition for _ in range(60)} == {0, 1}

    def test_equally_fast_partitions_get_equal_shares(self) -> None:
        queues = topic(1, 2, 3)
        chosen = [queues.switch().partition for _ in range(6_000)]
        assert all(1_800 < chosen.count(partition) < 2_200 for partition in range(3))

    def test_slow_partition_gets_its_share_without_adaptivity(self) -> None:
        queues = topic(1, 2, 3, batch_bytes=1_000, partitioning_is_adaptive=False)
        queue_up(queues, 2, 5_000)
        assert {queues.switch().partition for _ in range(100)} == {0, 1, 2}

    def test_slow_broker_is_left_with_the_next_batch(self) -> None:
        clock = [0.0]
        latencies = BrokerLatencies(lambda: clock[0])
        queues = topic(1, 2, latencies=latencies)
        queues.sticky = queues[0]
        latencies[1].sent(0.0)
        clock[0] = SLOW_S / 2
        assert queues.next_sticky(100) is queues[0]
        clock[0] = SLOW_S
        assert queues.next_sticky(100) is queues[1]
        assert queues.switch() is queues[1], "nor is it chosen"

    def test_slow_broker_is_kept_if_the_other_is_as_slow(self) -> None:
        clock = [0.0]
        latencies = BrokerLatencies(lambda: clock[0])
        queues = topic(1, 2, latencies=latencies)
        queues.sticky = queues[0]
        for node in (1, 2):
            latencies[node].sent(0.0)
        clock[0] = 1.0
        assert queues.next_sticky(100) is queues[0]
        assert {queues.switch().partition for _ in range(20)} == {0, 1}

    @pytest.mark.parametrize(
        ("leaders", "adaptive"), [((1, 1), True), ((1, NO_LEADER), True), ((1, 2), False)]
    )
    def test_slow_broker_is_kept_without_a_choice(self, leaders: tuple[int, ...], adaptive: bool) -> None:
        clock = [0.0]
        latencies = BrokerLatencies(lambda: clock[0])
        queues = topic(*leaders, latencies=latencies, partitioning_is_adaptive=adaptive)
        queues.sticky = queues[0]
        latencies[1].sent(0.0)
        clock[0] = 1.0
        assert queues.next_sticky(100) is queues[0]

    def test_fast_broker_is_chosen_despite_its_backlog(self) -> None:
        clock = [0.0]
        latencies = BrokerLatencies(lambda: clock[0])
        queues = topic(1, 2, latencies=latencies, batch_bytes=1_000)
        queue_up(queues, 1, 5_000)
        latencies[1].sent(0.0)
        clock[0] = 1.0
        assert {queues.switch().partition for _ in range(20)} == {1}

    def test_stalled_broker_is_avoided_if_another_is_available(self) -> None:
        stalled: set[int] = {2}
        latencies = BrokerLatencies(no_time)
        queues = TopicQueues("orders", batching_settings(), IdentityKeeper(), latencies, lambda: stalled)
        queues.update([1, 2, NO_LEADER, 2])
        assert {queues.switch().partition for _ in range(20)} == {0}
        stalled.add(1)
        assert {queues.switch().partition for _ in range(100)} == {0, 1, 3}, "if there is another"

    def test_keyless_records_stay_in_the_rack(self) -> None:
        stalled: set[int] = set()
        latencies = BrokerLatencies(no_time)
        queues = TopicQueues("orders", batching_settings(), IdentityKeeper(), latencies, lambda: stalled)
        queues.update([1, 2, 3, 2, NO_LEADER])

        def chosen() -> set[int]:
            return {queues.switch().partition for _ in range(200)}

        assert chosen() == {0, 1, 2, 3}
        latencies.nearby = {2, 7}
        assert chosen() == {1, 3}
        queue_up(queues, 1, 100_000)
        assert chosen() == {3}, "by the backlog, within the rack"
        stalled.add(2)
        assert chosen() == {0, 2}, "another rack while the nodes of this rack take nothing"
        stalled.clear()
        queues.update([1, NO_LEADER, 3, NO_LEADER, NO_LEADER])
        assert chosen() == {0, 2}
        queues.update([1, 2, 3, 1, NO_LEADER])
        assert chosen() == {1}

    def test_share_counts_only_nearby_partitions(self) -> None:
        latencies = BrokerLatencies(no_time)
        queues = TopicQueues("orders", batching_settings(), IdentityKeeper(), latencies)
        queues.update([1, 2, 3, 2])
        assert queues.share(4_000_000) == 1_000_000
        latencies.nearby = {2}
        assert queues.share(4_000_000) == 2_000_000


@pytest.mark.parametrize("kept", [False, True])
def test_topic_may_retire_when_idle_and_its_identity_is_not_kept(kept: bool) -> None:
    class Keeper(IdentityKeeper):
        def keeps(self, identity: ProducerIdentity | None) -> bool:
            return kept and identity == FIRST

    identities = Keeper()
    identities.assign(*FIRST)
    queues = TopicQueues("orders", batching_settings(), identities, BrokerLatencies(no_time))
    assert queues.may_retire
    assert queues[0].sequences.may_assign(identities, unsettled=())
    assert queues.may_retire is not kept
    queues.pending_calls["one"] = None
    assert not queues.may_retire
