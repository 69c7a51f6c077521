"""Offsets and group metadata in all forms used by consumers, and refused values."""

from __future__ import annotations

import struct
import warnings
from types import SimpleNamespace
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import pytest

from aioproducer import GroupMetadata, TopicPartition
from aioproducer._core.protocol.transactions import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioproducer._core.transactions.transaction_types import (
    OffsetAndMetadata,
    group_refused,
    offsets_of,
    topics_of,
)
from aioproducer.errors import CommitFailed, ProducerError, broker_error
from tests.cases import for_each

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its files as one did
    import kafka.structs

IN_0 = ("in", 0)


def of_confluent(**options: Any) -> bytes:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": "localhost:1", "log_level": 0, "group.id": "g", **options}
    )
    try:
        metadata = consumer.consumer_group_metadata()
        assert isinstance(metadata, bytes)
        return metadata
    finally:
        consumer.close()


class TestGroups:
    @for_each(
        ("given", "meant"),
        [
            ("g", GroupMetadata("g", -1, "", None)),
            (GroupMetadata("g", 3, "m", "i"), GroupMetadata("g", 3, "m", "i")),
            (SimpleNamespace(group_id="g"), GroupMetadata("g")),
            (
                SimpleNamespace(group_id="g", generation_id=3, member_id="m", group_instance_id="i"),
                GroupMetadata("g", 3, "m", "i"),
            ),
            (kafka.structs.ConsumerGroupMetadata("g"), GroupMetadata("g")),
            (kafka.structs.ConsumerGroupMetadata("g", 3, "m", "i"), GroupMetadata("g", 3, "m", "i")),
            ("g" * (2**15 - 1), GroupMetadata("g" * (2**15 - 1))),
            (GroupMetadata("g", 2**31 - 1, "m"), GroupMetadata("g", 2**31 - 1, "m")),
        ],
    )
    def test_group_is_accepted_in_every_form(self, given: object, meant: GroupMetadata) -> None:
        assert GroupMetadata.of(given) == meant

    @pytest.mark.parametrize(
        ("options", "meant"),
        [
            ({}, GroupMetadata("g", -1, "", None)),
            ({"group.id": "größe"}, GroupMetadata("größe", -1, "", None)),
            ({"group.instance.id": "i-X"}, GroupMetadata("g", -1, "", "i-X")),
            ({"group.id": "CGMDv2:g"}, GroupMetadata("CGMDv2:g", -1, "", None)),
        ],
    )
    def test_group_of_a_confluent_kafka_consumer_is_accepted(
        self, options: dict[str, str], meant: GroupMetadata
    ) -> None:
        assert GroupMetadata.of(of_confluent(**options)) == meant

    def test_group_of_a_joined_confluent_kafka_consumer_is_accepted(self) -> None:
        joined = b"CGMDv2:" + struct.pack("=i", 17) + b"g\0rdkafka-1\0\0i-1\0"
        assert GroupMetadata.of(joined) == GroupMetadata("g", 17, "rdkafka-1", "i-1")
        assert GroupMetadata.of(joined.replace(b"\0\0i-1\0", b"\0\1")) == GroupMetadata("g", 17, "rdkafka-1")

    @for_each(
        "given",
        [
            b"",
            b"my-group",
            b"CGMDv1:\0\0\0\0g\0m\0\1",
            b"CGMDv2:",
            b"CGMDv2:\0\0\0\0g\0m",
            b"CGMDv2:\0\0\0\0g\0m\0",
            b"CGMDv2:\0\0\0\0\xff\0m\0\1",
        ],
    )
    def test_bytes_of_another_kind(self, given: bytes) -> None:
        with pytest.raises(
            ValueError, match=rf"^group is {len(given)} bytes that are no result of consumer_group_metadata"
        ):
            GroupMetadata.of(given)

    @pytest.mark.parametrize(("given", "named"), [(None, "NoneType"), (5, "int"), (("g", 1), "tuple")])
    def test_group_of_another_type_is_refused(self, given: object, named: str) -> None:
        with pytest.raises(
            TypeError,
            match=(
                rf"^group is a {named}; expected the group's name, a GroupMetadata, or a consumer's group metadata$"
            ),
        ):
            GroupMetadata.of(given)

    @for_each(
        ("given", "kind", "message"),
        [
            ("", ValueError, "^group_id='': expected the name of a consumer group$"),
            (SimpleNamespace(group_id=None), ValueError, "^group_id=None: expected the name"),
            (kafka.structs.ConsumerGroupMetadata(), ValueError, "^group_id=None: expected the name"),
            (b"CGMDv2:\0\0\0\0\0m\0\1", ValueError, "^group_id='': expected the name"),
            (("g", "3"), TypeError, "^generation_id='3': expected an int, -1 for none$"),
            (("g", True), TypeError, "^generation_id=True: expected an int"),
            (("g", 3, None), TypeError, "^member_id=None: expected a str$"),
            (("g", 3, "m", 5), TypeError, "^group_instance_id=5: expected a str or None$"),
            (("g", -2), ValueError, "^generation_id=-2: generations count from 0; -1 is none$"),
            (("g", 2**31), ValueError, "^generation_id=2147483648: generations count"),
            ("ü" * 2**14, ValueError, r"^group_id has 32,768 bytes in UTF-8, more than 32,767$"),
            (("g", 3, "\ud800"), ValueError, "^member_id cannot be encoded in UTF-8$"),
            (("g", 3, "m", "i" * 2**15), ValueError, "^group_instance_id has 32,768 bytes"),
        ],
    )
    def test_group_with_a_field_of_another_type_is_refused(
        self, given: Any, kind: type[Exception], message: str
    ) -> None:
        made = (
            GroupMetadata(*given)
            if isinstance(given, tuple) and len(given) < 5 and given[0] == "g"
            else given
        )
        with pytest.raises(kind, match=message):
            GroupMetadata.of(made)

    @pytest.mark.parametrize("code", [22, 25, 82])
    def test_group_refused_covers_removed_consumers(self, code: int) -> None:
        assert group_refused(broker_error(code)())

    @for_each("error", [broker_error(30)(), broker_error(90)(), ProducerError(), CommitFailed()])
    def test_group_refused_excludes_other_errors(self, error: ProducerError) -> None:
        assert not group_refused(error)


class Place(NamedTuple):
    topic: str
    partition: int


class Progress(NamedTuple):
    leader_epoch: int
    offset: int


class TestOffsets:
    @for_each(
        "key",
        [
            IN_0,
            TopicPartition("in", 0),
            Place("in", 0),
            type("Key", (), {"topic": "in", "partition": 0})(),
            kafka.structs.TopicPartition("in", 0),
            aiokafka.TopicPartition("in", 0),
            confluent_kafka.TopicPartition("in", 0),
        ],
    )
    def test_partition_is_accepted_in_every_form(self, key: Any) -> None:
        assert offsets_of({key: 42}) == {TopicPartition("in", 0): OffsetAndMetadata(42, "", -1)}

    @for_each(
        ("value", "meant"),
        [
            (0, (0, "", -1)),
            (2**63 - 1, (2**63 - 1, "", -1)),
            ((42, "mine"), (42, "mine", -1)),
            ((42, None), (42, "", -1)),
            ((42, "x" * (2**15 - 1)), (42, "x" * (2**15 - 1), -1)),
            (OffsetAndMetadata(42, "", 2**31 - 1), (42, "", 2**31 - 1)),
            (OffsetAndMetadata(42, "mine", 5), (42, "mine", 5)),
            (Progress(5, 42), (42, "", 5)),
            (SimpleNamespace(offset=42), (42, "", -1)),
            (SimpleNamespace(offset=42, metadata=None, leader_epoch=None), (42, "", -1)),
            (SimpleNamespace(offset=42, metadata="mine", leader_epoch=5), (42, "mine", 5)),
            (kafka.structs.OffsetAndMetadata(42), (42, "", -1)),
            (kafka.structs.OffsetAndMetadata(42, "mine", 5), (42, "mine", 5)),
            (aiokafka.structs.OffsetAndMetadata(42, "mine"), (42, "mine", -1)),
            (confluent_kafka.TopicPartition("in", 0, 42), (42, "", -1)),
        ],
    )
    def test_offset_is_accepted_in_every_form(self, value: Any, meant: tuple[int, str, int]) -> None:
        assert offsets_of({IN_0: value}) == {TopicPartition("in", 0): OffsetAndMetadata(*meant)}

    @pytest.mark.parametrize("given", [None, [], [(IN_0, 42)], 5, "in"])
    def test_offsets_that_are_no_mapping_are_refused(self, given: Any) -> None:
        with pytest.raises(TypeError, match=rf"^offsets is a {type(given).__name__}; expected a mapping of"):
            offsets_of(given)

    @for_each(
        ("key", "kind", "message"),
        [
            ("in", TypeError, r"^offsets has the key 'in'; expected \(topic, partition\)$"),
            (5, TypeError, r"^offsets has the key 5; expected \(topic, partition\)$"),
            (("in",), TypeError, r"^offsets has the key \('in',\); expected \(topic, partition\)$"),
            (("in", 0, 1), TypeError, r"expected \(topic, partition\)$"),
            ((0, "in"), TypeError, r"expected \(topic, partition\), a str and an int$"),
            ((b"in", 0), TypeError, "a str and an int$"),
            (("in", True), TypeError, "a str and an int$"),
            (("in", 0.0), TypeError, "a str and an int$"),
            (
                ("", 0),
                ValueError,
                r"^offsets has the key \('', 0\); partitions count from 0, and topics have a name$",
            ),
            (("in", -1), ValueError, "partitions count from 0"),
            (("in", 2**31), ValueError, "; expected a legal topic name and a partition of at most 2"),
            (("\ud800", 0), ValueError, "expected a legal topic name"),
            (("x" * 2**15, 0), ValueError, "expected a legal topic name"),
        ],
    )
    def test_key_that_is_no_partition_is_refused(self, key: Any, kind: type[Exception], message: str) -> None:
        with pytest.raises(kind, match=message):
            offsets_of({key: 42})

    @for_each(
        ("value", "kind", "message"),
        [
            (
                "42",
                TypeError,
                r"^offsets\[\('in', 0\)\] = '42'; expected the next offset to read, an int, or",
            ),
            (None, TypeError, "= None; expected the next offset"),
            (True, TypeError, "= True; expected the next offset"),
            (42.0, TypeError, "= 42.0; expected the next offset"),
            ((42,), TypeError, r"= \(42,\); expected the next offset"),
            ((42, "mine", 5), TypeError, r"= \(42, 'mine', 5\); expected the next offset"),
            ((None, "mine"), TypeError, "expected the next offset"),
            (-1, ValueError, r"^offsets\[\('in', 0\)\] = -1; offsets count from 0$"),
            (2**63, ValueError, "offsets count from 0$"),
            ((42, b"mine"), TypeError, r"^offsets\[\('in', 0\)\] has the metadata b'mine'; expected a str$"),
            (kafka.structs.OffsetAndMetadata(None), TypeError, "expected the next offset"),
            (
                (42, "x" * 2**15),
                ValueError,
                r"^the metadata of offsets\[\('in', 0\)\] has 32,768 bytes in UTF-8, more than 32,767$",
            ),
            ((42, "\ud800"), ValueError, "cannot be encoded in UTF-8$"),
            (
                OffsetAndMetadata(42, "", 2**31),
                ValueError,
                "has the leader epoch 2147483648; leader epochs count",
            ),
            (
                OffsetAndMetadata(42, "", -2),
                ValueError,
                "has the leader epoch -2; leader epochs count from 0$",
            ),
            (
                SimpleNamespace(offset=42, leader_epoch="5"),
                TypeError,
                "has the leader epoch '5'; expected an int",
            ),
            (SimpleNamespace(offset=42, leader_epoch=True), TypeError, "has the leader epoch True; expected"),
        ],
    )
    def test_value_that_is_no_offset_is_refused(
        self, value: Any, kind: type[Exception], message: str
    ) -> None:
        with pytest.raises(kind, match=message):
            offsets_of({IN_0: value})

    def test_topics_of_groups_offsets_by_topic(self) -> None:
        given = {("in", 0): 42, ("other", 5): (1, "mine"), ("in", 3): OffsetAndMetadata(7, "", 9)}
        assert topics_of(offsets_of(given)) == [
            TxnOffsetCommitRequestTopic(
                name="in",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=0,
                        committed_offset=42,
                        committed_leader_epoch=-1,
                        committed_metadata="",
                    ),
                    TxnOffsetCommitRequestPartition(
                        partition_index=3, committed_offset=7, committed_leader_epoch=9, committed_metadata=""
                    ),
                ],
            ),
            TxnOffsetCommitRequestTopic(
                name="other",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=5,
                        committed_offset=1,
                        committed_leader_epoch=-1,
                        committed_metadata="mine",
                    )
                ],
            ),
        ]

    def test_empty_offsets_are_accepted(self) -> None:
        assert offsets_of({}) == {}
        assert topics_of({}) == []
