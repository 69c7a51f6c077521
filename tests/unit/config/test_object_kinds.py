from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from aioproducer._core.partitioning import AnyPartition, Murmur2Partitioner, RoundRobinPartitioner
from aioproducer._core.security.passwords import Plain
from aioproducer._core.security.secret import Secret
from aioproducer.config import ProducerConfig
from aioproducer.config.kinds import Choice, Kind
from aioproducer.config.object_kinds import (
    PROTOCOLS,
    STORES,
    CallableKind,
    HostnameCheck,
    InterceptorsKind,
    Jaas,
    MechanismKind,
    PartitionerKind,
    PathKind,
    SecretKind,
    SerializerKind,
    SslContext,
    Text,
    Url,
    Words,
)
from aioproducer.errors import ProducerError
from aioproducer.serializers import bytes_serializer, string_serializer
from aioproducer.types import ProducerRecord, RecordMetadata, TopicPartition
from tests.cases import for_each
from tests.unit._core.security.conversation import credentials

CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
PROTOCOL = Choice(PROTOCOLS)
VERSIONS = Words(("TLSv1.2", "TLSv1.3"))
JAAS = 'M required password="hunter2";'


@for_each(
    ("kind", "value", "kept"),
    [
        (PROTOCOL, "sasl_ssl", "SASL_SSL"),
        (Choice(STORES, optional=True), "pkcs12", "PKCS12"),
        (Choice(STORES, optional=True), None, None),
        (Choice(STORES, optional=True), "", None),
        (Text(), "a", "a"),
        (Text(), "", None),
        (PathKind(), "a/b", "a/b"),
        (PathKind(), Path("a/b"), "a/b"),
        (PathKind(), "", None),
        (SecretKind(), "a", Secret("a")),
        (SecretKind(), Secret("a"), Secret("a")),
        (SecretKind(), "", None),
        (SecretKind(), None, None),
        (Jaas(), JAAS, Secret(JAAS)),
        (Jaas(), None, None),
        (VERSIONS, "TLSv1.3, TLSv1.2,", ("TLSv1.3", "TLSv1.2")),
        (VERSIONS, ["TLSv1.3"], ("TLSv1.3",)),
        (Words(), None, ()),
        (Words(), "", ()),
        (Words(), "a, b,a", ("a", "b")),
        (HostnameCheck(("https", "")), "HTTPS", "https"),
        (HostnameCheck(("https", "")), "", ""),
        (SslContext(), CONTEXT, CONTEXT),
        (SslContext(), ssl.create_default_context, ssl.create_default_context),
        (SslContext(), None, None),
        (MechanismKind(), "scram-sha-256", "SCRAM-SHA-256"),
        (MechanismKind(), Plain, Plain),
        (MechanismKind(), "", None),
        (MechanismKind(), None, None),
        (CallableKind("it"), print, print),
        (CallableKind("it"), None, None),
        (Url(), "https://a.example:8443/token?x=y", "https://a.example:8443/token?x=y"),
        (Url(), "file:///a/b", "file:///a/b"),
        (Url(), "", None),
        (Url(), None, None),
    ],
)
def test_valid_value_is_stored_in_one_form(kind: Kind, value: object, kept: object) -> None:
    assert kind.check(value) == kept


@for_each(
    ("kind", "value"),
    [
        *((PROTOCOL, value) for value in ("", "TLS", 1, None)),
        *((Choice(STORES, optional=True), value) for value in ("DER", 1)),
        *((Text(), value) for value in (1, b"a")),
        *((PathKind(), value) for value in (1, b"a")),
        *((SecretKind(), value) for value in (1, b"a")),
        *((VERSIONS, value) for value in ("TLSv1.1", "", [], [1], None, 1, b"TLSv1.2")),
        *((Words(), value) for value in (1, [None])),
        *((HostnameCheck(("https", "")), value) for value in ("http", None, False)),
        *((SslContext(), value) for value in (1, b"ctx")),
        *((MechanismKind(), value) for value in (1,)),
        *((CallableKind("it"), value) for value in (1, ("u", "p"))),
        *(
            (Url(), value)
            for value in ("a.example", "ftp://a", "https://", "http://a:b", "file:", 1, "http://[::1")
        ),
    ],
)
def test_invalid_value_is_refused_with_the_expected_form(kind: Kind, value: object) -> None:
    with pytest.raises(ValueError) as raised:
        kind.check(value)
    assert str(raised.value) == f"expected {kind.expected}"


@for_each(
    ("kind", "value", "why"),
    [
        (
            PathKind("ssl_keystore_key"),
            "-----BEGIN PRIVATE KEY-----",
            "is PEM text, not a path; give it as ssl_keystore_key",
        ),
        (SslContext(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), "is made for servers"),
        (
            MechanismKind(),
            "NTLM",
            "is not known; expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
        ),
        (MechanismKind(), Plain(credentials()), "give a factory"),
        (Url(), "https://u:hunter2@a/", "contains a user name or password"),
        (Jaas(), "hunter2", "is no login module"),
    ],
)
def test_invalid_values_are_refused_with_a_reason(kind: Kind, value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kind.check(value)


@for_each(
    ("kind", "value", "shown"),
    [
        (SecretKind(), "hunter2", "***"),
        (Jaas(), "hunter2", "***"),
        (CallableKind("it"), "hunter2", "***"),
        (PathKind(), "-----BEGIN", "***"),
        (Url(), "https://u:hunter2@a", "***"),
        (PathKind(), "a", "'a'"),
        (Url(), "http:", "'http:'"),
        (Text(), 1, "1"),
        (SecretKind(), None, "None"),
    ],
)
def test_possible_secrets_are_hidden(kind: Kind, value: object, shown: str) -> None:
    assert kind.shown(value) == shown


@pytest.mark.parametrize("kind", [CallableKind("it"), SslContext()])
def test_text_in_place_of_code_is_refused(kind: Kind) -> None:
    with pytest.raises(ValueError, match="text cannot name code"):
        kind.check("package.module:function")


ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"


class Passing:
    """An interceptor with one of the three methods."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record


class Hearing:
    """An interceptor with `on_acknowledgement` alone, whose arguments have other names."""

    def on_acknowledgement(
        self, where: RecordMetadata | None, why: ProducerError | None, which: TopicPartition
    ) -> None:
        return


class Closing:
    """An interceptor with the third."""

    def close(self) -> None:
        return


class First:
    """A partitioner as one writes it down: the attribute is the class's, without a ClassVar."""

    keyless_is_sticky = False

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        return 0


class OfItsOwn(First):
    """A partitioner whose objects differ."""

    def __init__(self, *, keyless_is_sticky: bool) -> None:
        self.keyless_is_sticky = keyless_is_sticky


class OfAll:
    """A partitioner that says ClassVar."""

    keyless_is_sticky: ClassVar[bool] = True

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        return None


class ChoosingLater:
    """A partitioner that wants to wait."""

    keyless_is_sticky = True

    async def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int:
        return 0


async def encode_later(value: str) -> bytes:
    return value.encode()


class EncodingLater:
    """A callable object whose call is a coroutine."""

    async def __call__(self, value: str) -> bytes:
        return value.encode()


@for_each("serializer", [None, str.encode, string_serializer, bytearray, encode_later, EncodingLater()])
def test_serializer_may_be_any_callable_or_none(serializer: object) -> None:
    assert SerializerKind().check(serializer) is serializer


def in_context(value: str, context: object) -> bytes:
    return value.encode()


@pytest.mark.parametrize("serializer", [in_context, lambda: b""])
def test_serializer_with_another_signature_is_refused(serializer: object) -> None:
    with pytest.raises(ValueError, match=r"with the value alone.*\(aioproducer\.contrib\.schema_registry\)"):
        SerializerKind().check(serializer)


class SeesTopic:
    def serialize(self, topic: str, headers: object, value: str) -> bytes:
        return f"{topic}: {value}".encode()


class SeesTopicLater:
    async def serialize(self, topic: str, headers: object, value: str) -> bytes:
        return value.encode()


@pytest.mark.parametrize("serializer", [SeesTopic(), SeesTopicLater()])
def test_serializer_may_be_an_object_that_sees_the_topic(serializer: object) -> None:
    assert SerializerKind().check(serializer) is serializer


def test_serializer_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"is a class; give an instance of it: SeesTopic\(\)"):
        SerializerKind().check(SeesTopic)


@pytest.mark.parametrize("serializer", [5, b"bytes", object()])
def test_serializer_that_cannot_be_called_is_refused(serializer: object) -> None:
    with pytest.raises(ValueError, match="expected a callable"):
        SerializerKind().check(serializer)


@pytest.mark.parametrize("code", [encode_later, EncodingLater(), ChoosingLater()])
def test_partitioner_is_refused_when_async(code: object) -> None:
    with pytest.raises(ValueError, match=r"is a coroutine function.* await its result before the send"):
        PartitionerKind().check(code)


def test_java_serializers_have_counterparts_by_class_name() -> None:
    package = "org.apache.kafka.common.serialization"
    assert SerializerKind().parse(f"{package}.StringSerializer") is string_serializer
    assert SerializerKind().parse(f"{package}.ByteArraySerializer") is bytes_serializer


@pytest.mark.parametrize(
    "name", ["org.apache.kafka.common.serialization.LongSerializer", "com.example.Mine", ""]
)
def test_other_java_serializers_are_refused(name: str) -> None:
    kind = SerializerKind()
    with pytest.raises(ValueError, match=r"expected .*\.StringSerializer or .*\.ByteArraySerializer, or"):
        kind.check(kind.parse(name))


def test_java_round_robin_partitioner_has_a_counterpart() -> None:
    kind = PartitionerKind()
    assert isinstance(kind.check(kind.parse(ROUND_ROBIN)), RoundRobinPartitioner)


@pytest.mark.parametrize("value", [None, PartitionerKind().parse("")])
def test_missing_partitioner_selects_the_default(value: object) -> None:
    assert PartitionerKind().check(value) is None


def test_unknown_java_partitioner_is_refused() -> None:
    with pytest.raises(ValueError, match=f"expected {ROUND_ROBIN}.*leave the option out for Kafka's default"):
        PartitionerKind().check("com.example.MyPartitioner")


def test_partitioner_is_kept_and_callable_is_wrapped() -> None:
    partitioner = Murmur2Partitioner()
    assert PartitionerKind().check(partitioner) is partitioner

    def last(key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
        return every[-1]

    wrapped = PartitionerKind().check(last)
    assert wrapped is not None
    assert wrapped.partition("orders", b"key", 4, [0, 1]) == 3


@pytest.mark.parametrize("value", [5, object()])
def test_invalid_partitioner_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a Partitioner"):
        PartitionerKind().check(value)


def test_partitioner_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"is a class; give an instance of it: RoundRobinPartitioner\(\)"):
        PartitionerKind().check(RoundRobinPartitioner)


class CallableOfItsOwn(OfItsOwn):
    def __call__(self, key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
        raise NotImplementedError


def test_callable_partitioner_object_is_kept_unchanged() -> None:
    partitioner = CallableOfItsOwn(keyless_is_sticky=True)
    assert PartitionerKind().check(partitioner) is partitioner


def test_interceptors_keep_their_order() -> None:
    first, second = Passing(), Passing()
    interceptors: tuple[object, ...] = InterceptorsKind().check([first, second])
    assert interceptors == (first, second)
    assert InterceptorsKind().check(()) == ()


@for_each("value", [None, "com.example.Audit", Passing(), {Passing()}])
def test_interceptors_outside_a_sequence_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a sequence of objects"):
        InterceptorsKind().check(value)


def test_interceptor_class_is_refused() -> None:
    with pytest.raises(ValueError, match="holds the class Passing; give an instance"):
        InterceptorsKind().check([Passing])


@pytest.mark.parametrize("value", ["com.example.Audit", 5, None])
def test_interceptor_without_methods_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=f"holds {value!r}; expected"):
        InterceptorsKind().check([value])


def test_async_interceptor_is_refused() -> None:
    class Waiting:
        async def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record

    with pytest.raises(ValueError, match="is a coroutine function"):
        InterceptorsKind().check([Waiting()])


def test_interceptor_types_accept_some_of_the_methods() -> None:
    """These calls are checked by mypy: no `type: ignore` may become necessary."""
    config = ProducerConfig(bootstrap_servers="a:9092", interceptors=[Passing(), Hearing(), Closing()])
    assert [type(each) for each in config.interceptors] == [Passing, Hearing, Closing]
    assert len(ProducerConfig(bootstrap_servers="a:9092", interceptors=[Passing()]).interceptors) == 1


def test_partitioner_types_accept_all_forms_of_sticky() -> None:
    """Type checkers check these calls as well."""
    first, own, of_all = First(), OfItsOwn(keyless_is_sticky=True), OfAll()
    assert ProducerConfig(bootstrap_servers="a:9092", partitioner=first).partitioner is first
    assert ProducerConfig(bootstrap_servers="a:9092", partitioner=own).partitioner is own
    assert ProducerConfig(bootstrap_servers="a:9092", partitioner=of_all).partitioner is of_all


@pytest.mark.parametrize("key", [None, b"key"])
def test_any_partition_returns_none_with_and_without_a_key(key: bytes | None) -> None:
    assert AnyPartition().partition("orders", key, 3, [0, 2]) is None
    assert AnyPartition.keyless_is_sticky
