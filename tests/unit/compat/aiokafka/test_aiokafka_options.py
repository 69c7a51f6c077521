"""What aiokafka's options become."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer import ConfigError
from aioproducer.compat.aiokafka.aiokafka_options import our_config, with_ports

DEFAULTS: dict[str, Any] = {
    "bootstrap_servers": "localhost",
    "acks": None,
    "enable_idempotence": False,
    "request_timeout_ms": 40_000,
    "max_batch_size": 16_384,
    "max_request_size": 1_048_576,
    "linger_ms": 0,
    "connections_max_idle_ms": 540_000,
}


def test_the_defaults_do_what_aiokafka_does() -> None:
    config = our_config(**DEFAULTS)
    assert config.bootstrap_servers == ("localhost:9092",)
    assert config.acks == 1
    assert not config.idempotent
    assert config.linger_ms == 0
    assert config.max_block_ms == config.delivery_timeout_ms == config.request_timeout_ms == 40_000


def test_lingering_comes_on_top_of_the_request_timeout() -> None:
    config = our_config(**DEFAULTS | {"linger_ms": 2.5, "request_timeout_ms": 100})
    assert config.delivery_timeout_ms == 103


def test_an_idempotent_producer_waits_for_all_replicas_and_never_gives_up() -> None:
    config = our_config(**DEFAULTS | {"enable_idempotence": True})
    assert config.idempotent
    assert config.acks == "all"
    assert config.batching_settings().outlives_deadline_if_led


def test_an_idempotent_producer_cannot_have_fewer_acks() -> None:
    with pytest.raises(ConfigError, match="acks"):
        our_config(**DEFAULTS | {"enable_idempotence": True, "acks": 1})


def test_all_acks_alone_are_not_idempotence() -> None:
    config = our_config(**DEFAULTS | {"acks": -1})
    assert config.acks == "all"
    assert not config.idempotent


def test_no_idle_check_is_none_there() -> None:
    assert our_config(**DEFAULTS | {"connections_max_idle_ms": None}).connections_max_idle_ms == -1


def test_memory_is_no_limit_for_large_records() -> None:
    assert our_config(**DEFAULTS).buffer_memory == 33_554_432
    assert our_config(**DEFAULTS | {"max_request_size": 50_000_000}).buffer_memory == 100_000_000


def test_the_rest_goes_through() -> None:
    config = our_config(**DEFAULTS, client_id="me", retry_backoff_ms=7, compression_type=None)
    assert (config.client_id, config.retry_backoff_ms, config.compression_type) == ("me", 7, "none")


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost", ["localhost:9092"]),
        ("a:1, b", ["a:1", "b:9092"]),
        ("a:1, b,", ["a:1", "b:9092"]),
        ("", []),
        (["a", "b:2"], ["a:9092", "b:2"]),
        ("[::1]", ["[::1]:9092"]),
        ("[::1]:3", ["[::1]:3"]),
    ],
)
def test_a_broker_without_a_port_is_at_the_usual_one(servers: str | list[str], expected: list[str]) -> None:
    assert with_ports(servers) == expected


def test_a_transactional_producer_is_idempotent() -> None:
    config = our_config(**DEFAULTS | {"transactional_id": "me", "transaction_timeout_ms": 5_000})
    assert (config.transactional_id, config.transaction_timeout_ms, config.acks) == ("me", 5_000, "all")
    assert config.idempotent
    assert config.batching_settings().outlives_deadline_if_led
    with pytest.raises(ValueError, match="acks"):
        our_config(**DEFAULTS | {"transactional_id": "me", "acks": 1})


def test_the_timeout_means_nothing_without_an_id() -> None:
    assert our_config(**DEFAULTS | {"transaction_timeout_ms": 0}).transactional_id is None
