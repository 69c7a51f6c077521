"""Settings that each layer receives from a configuration."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError
from tests.cases import for_each
from tests.unit.config.configuring import configure


class TestSettings:
    """Milliseconds end here."""

    def test_connection_settings_are_in_seconds(self) -> None:
        settings = configure(
            client_id="me",
            request_timeout_ms=1_500,
            socket_connection_setup_timeout_ms=2_500,
            socket_connection_setup_timeout_max_ms=3_500,
            connections_max_idle_ms=4_500,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=20,
            send_buffer_bytes=-1,
            receive_buffer_bytes=7,
        ).connection_settings()
        assert settings.client_id == "me"
        assert settings.request_timeout_s == 1.5
        assert (settings.setup_timeout_s, settings.setup_timeout_max_s) == (2.5, 3.5)
        assert settings.idle_timeout_s == 4.5
        assert settings.reconnect_backoff == Backoff(initial_s=0.01, max_s=0.02)
        assert (settings.send_buffer_bytes, settings.receive_buffer_bytes) == (-1, 7)

    @pytest.mark.parametrize("connections_max_idle_ms", [-1, 0])
    def test_connections_that_may_idle_for_ever(self, connections_max_idle_ms: int) -> None:
        config = configure(connections_max_idle_ms=connections_max_idle_ms)
        assert config.connection_settings().idle_timeout_s is None

    def test_metadata_settings_are_in_seconds(self) -> None:
        settings = configure(
            bootstrap_servers="a:9092,[::1]:9093",
            metadata_max_age_ms=1_500,
            metadata_max_idle_ms=5_500,
            metadata_recovery_rebootstrap_trigger_ms=2_500,
            request_timeout_ms=3_500,
            retry_backoff_ms=10,
            retry_backoff_max_ms=20,
        ).metadata_settings()
        assert settings.bootstrap == (Address("a", 9092), Address("::1", 9093))
        assert (settings.max_age_s, settings.max_idle_s) == (1.5, 5.5)
        assert settings.rebootstrap_trigger_s == 2.5
        assert settings.request_timeout_s == 3.5
        assert settings.backoff == Backoff(initial_s=0.01, max_s=0.02)

    @pytest.mark.parametrize(("strategy", "rebootstrap"), [("none", False), ("rebootstrap", True)])
    def test_metadata_recovery_strategy_sets_rebootstrap(self, strategy: str, *, rebootstrap: bool) -> None:
        settings = configure(metadata_recovery_strategy=strategy).metadata_settings()
        assert settings.rebootstrap is rebootstrap

    def test_batching_settings_are_in_seconds_and_bytes(self) -> None:
        settings = configure(
            batch_size=1,
            linger_ms=2.5,
            buffer_memory=333,
            max_request_size=444,
            delivery_timeout_ms=60_500,
            max_in_flight_requests_per_connection=2,
            metadata_max_age_ms=1_500,
        ).batching_settings()
        assert (settings.batch_bytes, settings.buffer_bytes, settings.max_request_bytes) == (1, 333, 444)
        assert (settings.linger_s, settings.delivery_timeout_s, settings.batch_cap_s) == (0.0025, 60.5, 1.5)
        assert settings.max_in_flight == 2

    @pytest.mark.parametrize("name", ["buffer_memory", "max_request_size"])
    def test_sizes_that_no_record_fits_into_are_refused(self, name: str) -> None:
        with pytest.raises(
            ConfigError, match=f"^{name} = 70: no record would fit, .* needs 71 bytes; .* Kafka's default of"
        ):
            configure(**{name: 70})
        _ = configure(**{name: 71})

    def test_timeout_that_looks_like_seconds_is_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        _ = configure(request_timeout_ms=100)
        assert not caplog.records
        _ = configure(request_timeout_ms=30)
        assert (
            'config.doubtful name=request_timeout_ms value=30 reason="the unit is milliseconds' in caplog.text
        )

    @pytest.mark.parametrize(("acks", "number"), [("all", -1), (0, 0), (1, 1)])
    def test_sender_settings_are_in_seconds(self, acks: str | int, number: int) -> None:
        settings = configure(
            acks=acks,
            retries=7,
            request_timeout_ms=1_500,
            retry_backoff_ms=10,
            retry_backoff_max_ms=20,
            max_in_flight_requests_per_connection=2,
        ).sender_settings()
        assert settings.acks == number
        assert (settings.retries, settings.max_in_flight) == (7, 2)
        assert settings.request_timeout_s == 1.5
        assert settings.retry_backoff == Backoff(initial_s=0.01, max_s=0.02)

    @pytest.mark.parametrize("given", [{"linger_ms": 5}, {"linger_ms": 5.0}, {"linger_ms": 0}])
    def test_explicit_linger_does_not_adapt(self, given: dict[str, float]) -> None:
        config = configure(**given)
        for each in (
            config,
            copy.copy(config),
            pickle.loads(pickle.dumps(config)),
            dataclasses.replace(config, acks=1),
        ):
            assert not each.batching_settings().linger_is_adaptive
        assert (
            not ProducerConfig.from_mapping({"bootstrap.servers": "a:1", "linger.ms": "5"})
            .batching_settings()
            .linger_is_adaptive
        )

    def test_unset_option_equals_kafkas_default_and_adapts(self) -> None:
        config = configure()
        assert (config.linger_ms, repr(config.linger_ms)) == (5, "5")
        for each in (
            config,
            copy.copy(config),
            pickle.loads(pickle.dumps(config)),
            dataclasses.replace(config, acks=1),
        ):
            assert each.batching_settings().linger_is_adaptive
            assert each.batching_settings().linger_s == 0.005

    @for_each(
        ("given", "ready", "full"),
        [
            ({}, 16_384, 262_144),
            ({"batch_max_size": 20_000}, 16_384, 20_000),
            ({"batch_max_size": 1_000}, 1_000, 1_000),
            ({"max_request_size": 30_000}, 16_384, 30_000),
            ({"max_request_size": 8_000}, 8_000, 8_000),
            ({"batch_size": 16_384}, 16_384, 16_384),
            ({"batch_size": 300_000, "max_request_size": 8_000}, 300_000, 300_000),
            ({"batch_size": 0}, 0, 0),
            ({"batch_size": 1_000, "batch_max_size": 5_000}, 1_000, 5_000),
            ({"batch_size": 1_000, "batch_max_size": 5_000, "max_request_size": 4_000}, 1_000, 4_000),
        ],
    )
    def test_explicit_batch_size_is_the_limit_unless_both_are_given(
        self, given: dict[str, int], ready: int, full: int
    ) -> None:
        config = configure(**given)
        for each in (config, copy.copy(config), pickle.loads(pickle.dumps(config))):
            settings = each.batching_settings()
            assert (settings.batch_bytes, settings.batch_max_bytes) == (ready, full)

    def test_adaptive_partitioning_is_on_by_default(self) -> None:
        settings = configure().batching_settings()
        assert (settings.partitioning_is_adaptive, settings.availability_timeout_s) == (True, 0)
        settings = configure(
            partitioner_adaptive_partitioning_enable=False, partitioner_availability_timeout_ms=1_500
        ).batching_settings()
        assert (settings.partitioning_is_adaptive, settings.availability_timeout_s) == (False, 1.5)

    def test_waiting_for_metadata_and_memory(self) -> None:
        assert configure(max_block_ms=1_500).max_block_s == 1.5

    @for_each(
        ("protocol", "tls", "sasl"),
        [
            ("PLAINTEXT", False, False),
            ("SSL", True, False),
            ("SASL_PLAINTEXT", False, True),
            ("SASL_SSL", True, True),
        ],
    )
    def test_security_settings_follow_the_options(self, protocol: str, tls: bool, sasl: bool) -> None:
        config = configure(
            security_protocol=protocol, sasl_mechanism="PLAIN", sasl_username="u", sasl_password="hunter2"
        )
        settings = config.security_settings()
        assert (settings.tls is not None, settings.sasl is not None) == (tls, sasl)


PASSWORD: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "hunter2"}


def test_plaintext_connections_have_no_security() -> None:
    assert ProducerConfig(bootstrap_servers="a:1").connection_security() is None


@pytest.mark.parametrize(
    ("protocol", "logs_in"), [("SSL", False), ("SASL_PLAINTEXT", True), ("SASL_SSL", True)]
)
def test_connections_with_tls_or_login_have_security(protocol: Any, logs_in: bool) -> None:
    config = ProducerConfig(bootstrap_servers="a:1", security_protocol=protocol, **PASSWORD)
    security = config.connection_security()
    assert security is not None
    assert (security.authentication_backoff is not None) is logs_in
