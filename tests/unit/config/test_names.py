from __future__ import annotations

import ctypes
import inspect
import logging
import warnings
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest

from aioproducer.config.mapping import read_mapping
from aioproducer.config.names import (
    HARMLESS,
    KAFKA_NAMES,
    OTHER_CLIENTS,
    REFUSED,
    REFUSED_OF_OTHERS,
    WITHOUT_EFFECT,
    applied_options,
)
from aioproducer.config.options import KINDS
from aioproducer.errors import ConfigError
from tests.cases import for_each

KNOWN = {"acks", "batch_size", "linger_ms", "max_request_size", "partitioner", "request_timeout_ms"}


def test_names_may_have_dots_or_underscores() -> None:
    assert applied_options({"linger.ms": "5", "batch_size": 1}, KNOWN) == {"linger_ms": "5", "batch_size": 1}


def test_option_given_in_both_spellings_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^'linger_ms' is given twice: as 'linger\.ms' and as 'linger_ms'$"
    ):
        applied_options({"linger.ms": 5, "linger_ms": 5}, KNOWN)


def test_partitioner_class_is_an_alias_of_partitioner() -> None:
    assert applied_options({"partitioner.class": "x"}, KNOWN) == {"partitioner": "x"}
    with pytest.raises(ConfigError, match=r"given twice: as 'partitioner\.class' and as 'partitioner'"):
        applied_options({"partitioner.class": "x", "partitioner": "y"}, KNOWN)


@for_each("name", sorted(WITHOUT_EFFECT))
def test_kafkas_names_without_effect_are_logged_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert applied_options({name: "x", "acks": 1}, KNOWN) == {"acks": 1}
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert warning.getMessage() == f"config.without_effect name={name}"
    caplog.clear()


def test_warning_never_shows_the_value(caplog: pytest.LogCaptureFixture) -> None:
    applied_options({"ssl.provider": "hunter2", "sasl_login_class": "hunter2"}, KNOWN)
    assert len(caplog.records) == 2
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_names_of_missing_features_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name.replace('.', '_')} = 'true': "):
        applied_options({name.replace(".", "_"): "true"}, KNOWN)


@for_each("name", sorted(REFUSED))
@for_each(
    "value",
    [
        None,
        "",
        " ",
        False,
        "false",
        "FALSE",
        [],
        (),
        "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
    ],
)
def test_refused_option_with_a_neutral_value_is_ignored(
    name: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert applied_options({name: value}, KNOWN) == {}
    assert not caplog.records


@for_each(
    ("name", "nearest"),
    [
        ("linger", "linger_ms"),
        ("ack", "acks"),
        ("request_timeout", "request_timeout_ms"),
        ("request.timout.ms", "request.timeout.ms"),
        ("transactionalid", "transactional_id"),
        ("metric_reporter", "metric_reporters"),
        ("batchsize", "batch_size"),
        ("bootstrap_server", "bootstrap_servers"),
        ("compresion", "compression_type"),
        ("idempotence", "enable_idempotence"),
        ("max_in_flight_requests", "max_in_flight_requests_per_connection"),
        ("partioner", "partitioner"),
    ],
)
def test_unknown_name_suggests_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as raised:
        applied_options({name: 1}, KINDS)
    assert str(raised.value) == f"unknown option {name!r}; did you mean {nearest!r}?"


@for_each("name", ["qqq", "api_versions", "log_format", "brokers", "statistics", "timeout"])
def test_unknown_option_without_a_near_name_has_no_suggestion(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^unknown option '{name}'$"):
        applied_options({name: 1}, KINDS)


@for_each("name", sorted(REFUSED_OF_OTHERS))
def test_replacement_of_a_refused_option_is_named(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        applied_options({name.replace(".", "_"): 1}, KINDS)
    assert str(raised.value) == f"unknown option {name.replace('.', '_')!r}; {REFUSED_OF_OTHERS[name]}"


@for_each("name", ["proxy_url", "socks5_proxy", "connect_cb", "resolve_cb", "socket_cb"])
def test_dial_replaces_proxies_and_sockets_of_other_clients(name: str) -> None:
    with pytest.raises(ConfigError, match="give dial, an async function"):
        applied_options({name: 1}, KINDS)


@for_each("name", sorted(HARMLESS))
def test_names_of_other_clients_can_be_removed(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^unknown option '\w+'; it has no counterpart here; leave it out$"
    ):
        applied_options({name.replace(".", "_"): 1}, KINDS)


@for_each("name", sorted(KAFKA_NAMES))
def test_names_of_other_clients_suggest_kafkas_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"Kafka's name for it is {KAFKA_NAMES[name]}$"):
        applied_options({name: 1}, KNOWN)


def test_kafkas_name_is_given_in_the_spelling_that_was_used() -> None:
    with pytest.raises(ConfigError, match=r"Kafka's name for it is batch_size$"):
        applied_options({"max_batch_size": 1}, KNOWN)


@for_each("name", ["group_id", "schema_registry_url", "basic_auth_user_info", "consumer_acks"])
def test_option_of_another_client_is_no_keyword_argument(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^unknown option '{name}'; it has no counterpart here; leave it out$"
    ):
        applied_options({name: 1}, KINDS)


def test_all_mistakes_in_keyword_arguments_are_reported() -> None:
    with pytest.raises(ConfigError) as raised:
        applied_options({"linger": 1, "acs": 1, "acks": 1}, KINDS)
    assert str(raised.value).splitlines() == [
        "unknown option 'linger'; did you mean 'linger_ms'?",
        "unknown option 'acs'; did you mean 'acks'?",
    ]


def test_option_names_belong_to_one_kind() -> None:
    known = {name.replace("_", ".") for name in KNOWN}
    no_counterpart = HARMLESS | REFUSED_OF_OTHERS.keys()
    assert not known & WITHOUT_EFFECT
    assert not REFUSED.keys() & WITHOUT_EFFECT
    assert not KAFKA_NAMES.keys() & (WITHOUT_EFFECT | REFUSED.keys())
    assert not no_counterpart & (WITHOUT_EFFECT | REFUSED.keys() | KAFKA_NAMES.keys())
    assert not no_counterpart & OTHER_CLIENTS
    assert not OTHER_CLIENTS & (WITHOUT_EFFECT | REFUSED.keys() | KAFKA_NAMES.keys())
    assert not {name.replace(".", "_") for name in no_counterpart} & KINDS.keys()


def librdkafka_names(folder: Path) -> set[str]:
    """Return the options in the table that librdkafka prints."""
    libraries = sorted(
        (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
    )
    if not libraries:
        pytest.skip("librdkafka is not a shared library of the wheel")
    library, libc = ctypes.CDLL(str(libraries[0])), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    page = folder / "options"
    file = libc.fopen(str(page).encode(), b"w")
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = [line.split("|") for line in page.read_text().splitlines()]
    return {row[0].strip() for row in rows if len(row) > 1 and row[1].strip() in {"*", "P", "C"}}


def unknown(names: set[str]) -> list[str]:
    return [
        message
        for message in read_mapping(dict.fromkeys(names), KINDS).mistakes
        if "given twice" not in message
    ]


def test_names_of_librdkafka_are_known(tmp_path: Path) -> None:
    names = librdkafka_names(tmp_path)
    assert len(names) > 150
    assert unknown(names) == []


def test_names_of_aiokafka_are_known() -> None:
    assert unknown(set(inspect.signature(aiokafka.AIOKafkaProducer).parameters)) == []


def test_names_of_kafka_python_are_known() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a deprecated way
        import kafka  # noqa: PLC0415
    assert unknown(set(kafka.KafkaProducer.DEFAULT_CONFIG)) == []


def test_misspelt_name_is_not_known() -> None:
    assert unknown({"lingr.ms"}) != []
