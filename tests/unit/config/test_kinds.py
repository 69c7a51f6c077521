from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from aioproducer import ConfigError, Producer, ProducerConfig
from aioproducer._core.address import Address
from aioproducer.config.kinds import (
    Acks,
    Choice,
    ClientId,
    Flag,
    Integer,
    Kind,
    Number,
    Servers,
    option,
    parse_server,
)
from tests.cases import for_each

LEVEL = Integer(1, 9, besides=-1)
OPTIONAL_FLAG = Flag(optional=True)
CODEC = Choice(("none", "gzip"), absent="none")


@for_each(
    ("kind", "value", "kept"),
    [
        (LEVEL, 1, 1),
        (LEVEL, 9, 9),
        (LEVEL, -1, -1),
        (Number(0), 0, 0),
        (Number(0), 0.25, 0.25),
        (Number(0), 2**63 - 1, 2**63 - 1),
        (Flag(), True, True),
        (Flag(), False, False),
        (OPTIONAL_FLAG, None, None),
        (CODEC, "GZIP", "gzip"),
        (CODEC, None, "none"),
        (Acks(), "all", "all"),
        (Acks(), "ALL", "all"),
        (Acks(), -1, "all"),
        (Acks(), "-1", "all"),
        (Acks(), "1", 1),
        (Acks(), 0, 0),
        (ClientId(), "", ""),
        (ClientId(), "é" * 16_383, "é" * 16_383),
    ],
)
def test_valid_value_is_normalized(kind: Kind, value: object, kept: object) -> None:
    checked = kind.check(value)
    assert checked == kept
    assert type(checked) is type(kept)


@for_each(
    ("kind", "value"),
    [
        *((LEVEL, value) for value in (0, 10, -2, True, 5.0, "5", None)),
        *((Number(0), value) for value in (-0.1, float("nan"), float("inf"), 2**63, True, "5", None)),
        *((Flag(), value) for value in (1, 0, "true", None)),
        *((OPTIONAL_FLAG, value) for value in (1, "true")),
        *((CODEC, value) for value in ("no-such-codec", "", 1)),
        (Choice(("none", "rebootstrap")), None),
        *((Acks(), value) for value in (2, -2, True, 1.0, "2", "", "most", None)),
        *((ClientId(), value) for value in ("é" * 16_384, b"bytes", 5)),
    ],
)
def test_invalid_value_is_answered_with_the_expected_form(kind: Kind, value: object) -> None:
    with pytest.raises(ValueError) as raised:
        kind.check(value)
    assert str(raised.value) == f"expected {kind.expected}"


@for_each(
    ("kind", "text", "value"),
    [
        (LEVEL, "5", 5),
        (LEVEL, "-1", -1),
        (LEVEL, "+7", 7),
        (Number(0), "5", 5),
        (Number(0), "0.25", 0.25),
        (Flag(), "true", True),
        (Flag(), "False", False),
        (CODEC, "gzip", "gzip"),
        (Acks(), "all", "all"),
    ],
)
def test_text_is_read_as_java_reads_it(kind: Kind, text: str, value: object) -> None:
    parsed = kind.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@for_each(
    ("kind", "text"),
    [
        *((LEVEL, text) for text in ("", "five", "1_0", "5.0", "\u0665", "9" * 5_000)),
        *((Number(0), text) for text in ("", "nan", "1e3", "1_0.5", ".5")),
        *((Flag(), text) for text in ("", "yes", "1")),
    ],
)
def test_text_that_cannot_be_read_is_refused_as_it_stands(kind: Kind, text: str) -> None:
    assert kind.parse(text) == text
    with pytest.raises(ValueError):
        kind.check(kind.parse(text))


def test_client_ids_that_are_left_out_are_numbered() -> None:
    first, second = ClientId().check(None), ClientId().check(None)
    prefix, _, number = first.rpartition("-")
    assert prefix == "aioproducer"
    assert second == f"aioproducer-{int(number) + 1}"


def test_integer_expectation_names_bounds_and_exception() -> None:
    assert Integer(0).expected == "an integer from 0 to 2^31 - 1"
    assert LEVEL.expected == "an integer from 1 to 9, or -1"
    assert Number(0).expected == "a number from 0 to 2^63 - 1"
    assert (Flag().expected, OPTIONAL_FLAG.expected) == ("True or False", "True, False or None")
    assert CODEC.expected == "one of none, gzip"


FLAG = Flag()


@dataclass
class Few:
    one: bool = option(True, FLAG, "What it is for.")


def test_option_has_its_kind_and_its_meaning() -> None:
    assert Few().one is True
    (one,) = fields(Few)
    assert one.metadata == {"kind": FLAG, "meaning": "What it is for."}


def test_long_value_is_shown_shortened() -> None:
    assert FLAG.shown("x" * 198) == repr("x" * 198)
    assert FLAG.shown("x" * 40_000) == "'" + "x" * 79 + "… (40,002 characters)"


def test_value_without_a_repr_is_shown_by_its_type() -> None:
    assert FLAG.shown(10**5_000) == "a value of type int"


@for_each(
    ("text", "address"),
    [
        ("localhost:9092", Address("localhost", 9092)),
        (" kafka_1.example-host.org:1 ", Address("kafka_1.example-host.org", 1)),
        ("10.0.0.1:65535", Address("10.0.0.1", 65_535)),
        ("[::1]:9092", Address("::1", 9092)),
        ("[fe80::1%eth0]:9092", Address("fe80::1%eth0", 9092)),
        ("PLAINTEXT://broker:9092", Address("broker", 9092)),
        ("plaintext://[2001:db8::7]:9092", Address("2001:db8::7", 9092)),
    ],
)
def test_server_is_a_host_and_a_port(text: str, address: Address) -> None:
    assert parse_server(text) == address


@for_each(
    ("text", "message"),
    [
        ("localhost", "'localhost' has no port; Kafka's usual one would be 'localhost:9092'"),
        ("localhost:", "has no port"),
        ("[::1]", r"has no port; Kafka's usual one would be '\[::1\]:9092'"),
        ("::1:9092", "more than one colon; an IPv6 address goes in brackets"),
        ("host:port", "'port' is not a number from 1 to 65535"),
        ("host:0", "'0' is not a number from 1 to 65535"),
        ("host:65536", "'65536' is not a number"),
        ("host:-1", "'-1' is not a number"),
        ("host:\u0669\u0660\u0669\u0662", "is not a number"),
        ("host:" + "9" * 5_000, "is not a number"),
        (":9092", "no usable host name"),
        ("two words:9092", "no usable host name"),
        ("host/path:9092", "no usable host name"),
        ("localhost;9092", "no usable host name; expected host:port"),
        ("[::1:9092", "not an IPv6 address with a port"),
        ("[host]:9092", "not an IPv6 address with a port"),
        ("[::1]9092", "not an IPv6 address with a port"),
        ("SSL://broker:9093", "which security_protocol does; here it is 'broker:9093'"),
        ("http://broker:9092", "'http://broker:9092' says how to talk"),
        ("a:9092 b:9092", "several brokers are separated by commas: 'a:9092,b:9092'"),
        ("a:9092; b:9092;c:9092", "several brokers are separated by commas: 'a:9092,b:9092,c:9092'"),
        ("a" * 64 + ".example.org:9092", "between dots there are 1 to 63 characters, and not 64"),
        ("kafka..example.org:9092", "between dots there are 1 to 63 characters, and not 0"),
    ],
)
def test_invalid_server_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_server(text)


@for_each(
    ("value", "servers"),
    [
        ("a:9092", ("a:9092",)),
        ("a:9092, b:9092 ,c:9092,", ("a:9092", "b:9092", "c:9092")),
        (["b:9092", "a:9092"], ("b:9092", "a:9092")),
        (("[::1]:9092", "PLAINTEXT://a:1"), ("[::1]:9092", "a:1")),
        ("a:9092,b:9092,a:9092", ("a:9092", "b:9092")),
    ],
)
def test_servers_come_as_text_or_as_a_sequence(value: object, servers: tuple[str, ...]) -> None:
    assert Servers().check(value) == servers


@for_each("value", ["", " , ", [], [""]])
def test_servers_need_at_least_one_broker(value: object) -> None:
    with pytest.raises(ValueError, match="names no broker; expected host:port"):
        Servers().check(value)


@for_each("value", [None, 9092, b"a:9092", ["a:9092", None], {"a:9092"}])
def test_servers_of_another_type_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^expected host:port"):
        Servers().check(value)


def test_constructor_refuses_a_producer_config() -> None:
    with pytest.raises(ConfigError, match=r"a ProducerConfig goes into Producer\.from_config"):
        Producer(ProducerConfig(bootstrap_servers="a:9092"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    ["jane:hunter2@broker:9092", "SASL_SSL://jane:hunter2@broker:9092", ["a:1", "jane:hunter2@broker:9092"]],
)
def test_password_in_an_address_is_not_shown(given: str | list[str]) -> None:
    with pytest.raises(ConfigError, match=r"before the address 'broker:9092' would not be used") as caught:
        Producer(given)
    assert "hunter2" not in str(caught.value)
    assert "sasl_password" in str(caught.value)


@pytest.mark.parametrize("host", ["a" * 63, "a.b.", "a" * 63 + "." + "b" * 63])
def test_server_name_may_have_the_maximum_length(host: str) -> None:
    assert parse_server(f"{host}:9092") == Address(host, 9092)


def test_servers_as_mapping_are_refused_without_its_values() -> None:
    options = {"bootstrap.servers": "localhost:9092", "sasl.password": "hunter2"}
    with pytest.raises(ConfigError, match=r"Producer\.from_config\(ProducerConfig\.from_mapping") as caught:
        Producer(options)  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)
