from __future__ import annotations

import gc

import pytest

from aioproducer._core.acceleration import accelerated
from aioproducer._core.metadata.snapshot import (
    NO_LEADER,
    Broker,
    LeaderHint,
    MetadataSnapshot,
    PartitionInfo,
    TopicInfo,
)
from aioproducer._core.protocol.metadata import MetadataResponseTopic
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer.errors import (
    BrokerError,
    InvalidTopicException,
    LeaderNotAvailable,
    ReplicaNotAvailable,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    broker_error,
)
from tests.cases import for_each
from tests.unit._core.metadata.answers import AN_ID, ANOTHER_ID, after, leaders, partition, refused, topic

NOTHING = MetadataSnapshot()


def hint(index: int, leader: int, epoch: int, name: str = "orders") -> LeaderHint:
    return LeaderHint(name, index, leader, epoch)


class TestAnswer:
    def test_response_describes_the_cluster(self) -> None:
        known = after(NOTHING, topic("orders", (1, 5), (2, 7)), now=12.0)
        assert known.cluster_id == "c"
        assert known.controller_id == 1
        assert known.brokers[2] == Broker(2, "b2", 9002, None)
        assert known.fetched_at == 12.0
        assert known.topics == {
            "orders": TopicInfo("orders", AN_ID, (PartitionInfo(0, 1, 5), PartitionInfo(1, 2, 7)))
        }

    def test_rack_contains_its_brokers(self) -> None:
        brokers = {each: Broker(each, "b", 9092, rack) for each, rack in enumerate(["a", "b", None, "a"])}
        known = MetadataSnapshot(brokers=brokers)
        assert [known.in_rack(rack) for rack in ("a", "b", "c")] == [{0, 3}, {1}, set()]

    def test_response_may_list_partitions_in_any_order(self) -> None:
        told = MetadataResponseTopic(
            name="orders", partitions=[partition(2, 3), partition(0, 1), partition(1, 2)]
        )
        assert leaders(after(NOTHING, told), "orders") == [1, 2, 3]

    @for_each("indexes", [(1,), (0, 2), (0, 0), (-1, 0), (2**31 - 1,)])
    def test_topic_with_partition_gaps_is_unavailable(self, indexes: tuple[int, ...]) -> None:
        odd = MetadataResponseTopic(name="odd", partitions=[partition(each, 1) for each in indexes])
        known = after(NOTHING, odd, topic("orders", 1))
        assert known.topics["odd"].partitions == ()
        assert known.topics["odd"].error is LeaderNotAvailable
        assert known.knows("orders")

    def test_topic_without_partitions_is_unavailable(self) -> None:
        known = after(NOTHING, topic("new"))
        assert known.topics["new"].error is LeaderNotAvailable
        assert not known.knows("new")

    def test_response_about_topics_not_requested_is_ignored(self) -> None:
        nameless = MetadataResponseTopic(name=None, partitions=[partition(0, 1)])
        assert after(NOTHING, topic("other", 1), nameless, asked=["orders"]).topics == {}

    def test_response_without_a_topic_leaves_it_unchanged(self) -> None:
        known = after(NOTHING, topic("orders", 1))
        assert after(known, asked=["orders"]).topics["orders"] is known.topics["orders"]


class TestLeader:
    def test_leader_is_a_broker(self) -> None:
        assert after(NOTHING, topic("orders", 1, 3)).leader("orders", 1) == Broker(3, "b3", 9003)

    @for_each(("name", "index"), [("other", 0), ("orders", 2), ("orders", -1), ("orders", 1)])
    def test_leader_of_an_unknown_partition_is_none(self, name: str, index: int) -> None:
        assert after(NOTHING, topic("orders", 1, NO_LEADER)).leader(name, index) is None

    @pytest.mark.parametrize("leader", [NO_LEADER, -2, 9])
    def test_leader_outside_the_brokers_is_none(self, leader: int) -> None:
        known = after(NOTHING, topic("orders", leader, 2))
        assert leaders(known, "orders") == [NO_LEADER, 2]
        assert known.topics["orders"].leaderless

    def test_topic_info_has_a_leader_for_each_partition(self) -> None:
        info = after(NOTHING, topic("orders", 1, 2)).topics["orders"]
        assert info.leaders == (1, 2)
        assert not info.leaderless

    def test_lost_broker_is_removed_as_leader_of_other_topics(self) -> None:
        known = after(NOTHING, topic("orders", 1, 2), topic("audit", 1))
        later = after(known, topic("new", 1), complete=False, nodes=(1, 3))
        assert leaders(later, "orders") == [1, NO_LEADER]
        assert later.topics["audit"] is known.topics["audit"]

    def test_lost_broker_is_not_restored_as_leader_by_the_response(self) -> None:
        known = after(NOTHING, topic("orders", 1, 2))
        later = after(known, topic("orders", 1, 2), nodes=(1, 3))
        assert leaders(later, "orders") == [1, NO_LEADER]
        assert later.changed == {"orders"}

    def test_led_by_lists_the_topics_of_a_node(self) -> None:
        known = after(NOTHING, topic("orders", 1, 2), topic("audit", 1), topic("none", NO_LEADER))
        assert known.led_by(1) == ["orders", "audit"]
        assert known.led_by(2) == ["orders"]
        assert known.led_by(3) == []


class TestNewerAnswer:
    def test_response_with_a_newer_epoch_moves_the_leader(self) -> None:
        known = after(NOTHING, topic("orders", (1, 5)))
        assert leaders(after(known, topic("orders", (2, 6))), "orders") == [2]

    def test_response_with_an_older_epoch_is_ignored(self) -> None:
        known = after(NOTHING, topic("orders", (1, 5), (1, 5)))
        later = after(known, topic("orders", (2, 4), (3, 6)))
        assert later.topics["orders"].partitions == (PartitionInfo(0, 1, 5), PartitionInfo(1, 3, 6))

    def test_response_with_the_current_epoch_is_applied(self) -> None:
        """The current leader is back among the brokers."""
        known = after(NOTHING, topic("orders", (2, 5)), nodes=(1,))
        assert leaders(after(known, topic("orders", (2, 5))), "orders") == [2]

    def test_response_without_epochs_is_applied(self) -> None:
        known = after(NOTHING, topic("orders", (1, 5)))
        assert leaders(after(known, topic("orders", (2, -1))), "orders") == [2]

    def test_response_with_an_older_epoch_restores_no_lost_leader(self) -> None:
        known = after(NOTHING, topic("orders", (2, 5)))
        later = after(known, topic("orders", (1, 4)), nodes=(1,))
        assert later.topics["orders"].partitions == (PartitionInfo(0, NO_LEADER, 5),)

    def test_response_with_another_topic_id_may_have_any_epoch(self) -> None:
        known = after(NOTHING, topic("orders", (1, 5), (1, 5)))
        later = after(known, topic("orders", (2, 0), topic_id=ANOTHER_ID))
        assert later.topics["orders"] == TopicInfo("orders", ANOTHER_ID, (PartitionInfo(0, 2, 0),))

    def test_response_without_topic_ids_is_applied_with_any_epoch(self) -> None:
        """The topic may have been recreated; without topic ids only the response can show that."""
        known = after(NOTHING, topic("orders", (1, 5), topic_id=NO_TOPIC_ID))
        later = after(known, topic("orders", (2, 0), topic_id=NO_TOPIC_ID))
        assert leaders(later, "orders") == [2]

    def test_response_with_more_partitions_adds_them(self) -> None:
        known = after(NOTHING, topic("orders", 1))
        assert leaders(after(known, topic("orders", 1, 2, 3)), "orders") == [1, 2, 3]

    def test_response_with_fewer_partitions_keeps_the_known_ones(self) -> None:
        known = after(NOTHING, topic("orders", 1, 2, (3, 4)))
        later = after(known, topic("orders", (3, 1)), nodes=(1, 3))
        assert later.topics["orders"].partitions == (
            PartitionInfo(0, 3, 1),
            PartitionInfo(1, NO_LEADER, 0),
            PartitionInfo(2, 3, 4),
        )


class TestTopicError:
    @pytest.mark.parametrize("error", [LeaderNotAvailable, TopicAuthorizationFailed, InvalidTopicException])
    def test_topic_error_of_an_unknown_topic_is_kept(self, error: type[BrokerError]) -> None:
        info = after(NOTHING, refused("orders", error)).topics["orders"]
        assert info == TopicInfo("orders", NO_TOPIC_ID, (), error)

    @pytest.mark.parametrize("error", [LeaderNotAvailable, TopicAuthorizationFailed, broker_error(9999)])
    def test_topic_error_keeps_the_known_partitions(self, error: type[BrokerError]) -> None:
        known = after(NOTHING, topic("orders", 1, 2))
        info = after(known, refused("orders", error), nodes=(1,)).topics["orders"]
        assert info.error is error
        assert info.topic_id == AN_ID
        assert [each.leader for each in info.partitions] == [1, NO_LEADER]

    def test_topic_error_keeps_the_partitions_of_the_response(self) -> None:
        info = after(NOTHING, topic("orders", 1, error=ReplicaNotAvailable)).topics["orders"]
        assert info.error is ReplicaNotAvailable
        assert info.leaders == (1,)

    def test_unknown_topic_error_removes_the_partitions(self) -> None:
        known = after(NOTHING, topic("orders", (1, 5)))
        gone = after(known, refused("orders", UnknownTopicOrPartition))
        assert gone.topics["orders"] == TopicInfo("orders", NO_TOPIC_ID, (), UnknownTopicOrPartition)
        assert not gone.knows("orders")
        assert gone.changed == {"orders"}
        assert leaders(after(gone, topic("orders", (2, 0))), "orders") == [2]

    def test_topic_error_is_cleared_by_the_next_response(self) -> None:
        known = after(NOTHING, topic("orders", 1))
        healed = after(after(known, refused("orders", TopicAuthorizationFailed)), topic("orders", 1))
        assert healed.topics == known.topics


class TestChange:
    def test_unchanged_response_keeps_the_version_and_every_object(self) -> None:
        known = after(NOTHING, topic("orders", 1, 2), refused("gone", UnknownTopicOrPartition), topic("odd"))
        again = after(
            known, topic("orders", 1, 2), refused("gone", UnknownTopicOrPartition), topic("odd"), now=2.0
        )
        assert again.version == known.version
        assert again.fetched_at == 2.0
        assert again.brokers is known.brokers
        assert all(again.topics[name] is known.topics[name] for name in known.topics)
        assert again.changed == frozenset()

    def test_changed_topics_are_named(self) -> None:
        known = after(NOTHING, topic("orders", 1), topic("audit", 1))
        later = after(known, topic("orders", (1, 1)), topic("audit", 1))
        assert later.changed == {"orders"}
        assert later.version == known.version + 1

    def test_changed_topics_include_new_and_removed_ones(self) -> None:
        known = after(NOTHING, topic("orders", 1), topic("audit", 1))
        later = after(known, topic("audit", 1), topic("new", 1))
        assert later.changed == {"orders", "new"}

    def test_changed_brokers_increment_the_version_only(self) -> None:
        known = after(NOTHING, topic("orders", 1))
        later = after(known, topic("orders", 1), nodes=(1, 2, 3, 4))
        assert later.version == known.version + 1
        assert later.changed == frozenset()

    def test_partial_response_keeps_other_topics_and_their_age(self) -> None:
        known = after(NOTHING, topic("orders", 1), now=1.0)
        later = after(known, topic("new", 2), complete=False, now=2.0)
        assert later.topics.keys() == {"orders", "new"}
        assert later.fetched_at == 1.0

    def test_update_leaves_the_previous_snapshot_unchanged(self) -> None:
        known = after(NOTHING, topic("orders", 1))
        after(known, topic("orders", 2), topic("new", 2), nodes=(2,))
        assert known == after(NOTHING, topic("orders", 1))


class TestLeaderHint:
    def test_leader_hints_move_leaders(self) -> None:
        known = after(NOTHING, topic("orders", (1, 5), (1, 5), (1, 5)), topic("audit", 1), topic("third", 1))
        later = known.with_leader_hints([hint(2, 3, 6), hint(0, 2, 6), hint(0, 2, 1, "audit")], ())
        assert leaders(later, "orders") == [2, 1, 3]
        assert leaders(later, "audit") == [2]
        assert later.changed == {"orders", "audit"}
        assert later.version == known.version + 1
        assert later.fetched_at == known.fetched_at

    def test_leader_hint_may_name_an_unknown_broker(self) -> None:
        known = after(NOTHING, topic("orders", (1, 5)))
        later = known.with_leader_hints([hint(0, 9, 6)], [Broker(9, "b9", 9009)])
        assert later.leader("orders", 0) == Broker(9, "b9", 9009)

    def test_leader_hint_adds_the_missing_broker_of_a_leader(self) -> None:
        known = after(NOTHING, topic("orders", (9, 5)))
        later = known.with_leader_hints([hint(0, 9, 5)], [Broker(9, "b9", 9009)])
        assert leaders(later, "orders") == [9]

    def test_newest_leader_hint_of_a_partition_wins(self) -> None:
        known = after(NOTHING, topic("orders", (1, 5)))
        assert leaders(known.with_leader_hints([hint(0, 2, 7), hint(0, 3, 6)], ()), "orders") == [2]

    @for_each(
        "useless",
        [
            hint(0, 2, 4),
            hint(0, 2, 5),
            hint(0, 9, 6),
            hint(0, -1, -1),
            hint(1, 2, 6),
            hint(-1, 2, 6),
            hint(0, 2, 6, "other"),
        ],
    )
    def test_outdated_leader_hint_changes_nothing(self, useless: LeaderHint) -> None:
        known = after(NOTHING, topic("orders", (1, 5)))
        assert known.with_leader_hints([useless], [Broker(1, "moved", 1)]) is known

    def test_wrong_leader_hint_is_dropped_when_its_node_denies_it(self) -> None:
        """The epoch of the hint may never be reached, so it would hide every later response."""
        known = after(NOTHING, topic("orders", (1, 5), (1, 5))).with_leader_hints([hint(0, 2, 1_000)], ())
        doubted = known.with_stale_leaders("orders", [0], 2)
        assert leaders(doubted, "orders") == [2, 1]
        assert doubted.version == known.version
        assert leaders(after(doubted, topic("orders", (1, 5), (1, 4))), "orders") == [1, 1]
        assert leaders(doubted.with_leader_hints([hint(0, 1, 5)], ()), "orders") == [1, 1]

    @for_each(
        ("name", "partitions", "node_id"),
        [("orders", [0], 2), ("orders", [1], 1), ("orders", [-1], 1), ("orders", [], 1), ("no", [0], 1)],
    )
    def test_leader_is_doubted_only_when_its_own_node_denies_it(
        self, name: str, partitions: list[int], node_id: int
    ) -> None:
        known = after(NOTHING, topic("orders", (1, 5)))
        assert known.with_stale_leaders(name, partitions, node_id) is known

    def test_leader_is_doubted_once(self) -> None:
        doubted = after(NOTHING, topic("orders", (1, 5))).with_stale_leaders("orders", [0], 1)
        assert doubted.with_stale_leaders("orders", [0], 1) is doubted

    def test_leader_hint_outlives_a_response_with_an_older_epoch(self) -> None:
        hinted = after(NOTHING, topic("orders", (1, 5))).with_leader_hints([hint(0, 2, 6)], ())
        assert leaders(after(hinted, topic("orders", (1, 5))), "orders") == [2]


@pytest.mark.skipif(not accelerated, reason="Python cannot exclude an object from the collector")
def test_collector_does_not_visit_topics() -> None:
    info = after(NOTHING, topic("orders", 1, 2)).topics["orders"]
    assert not any(map(gc.is_tracked, (info, info.partitions, *info.partitions)))
