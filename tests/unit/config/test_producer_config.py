from __future__ import annotations

import copy
import dataclasses
import logging
import pickle
import ssl
from typing import Any

import pytest

from aioproducer._core.partitioning import AnyPartition, Murmur2Partitioner, RoundRobinPartitioner
from aioproducer._core.records.compression import Codec
from aioproducer._core.security.secret import Secret
from aioproducer.config import ProducerConfig, rules as module
from aioproducer.config.security_options import SecurityOptions
from aioproducer.errors import ConfigError, ProducerError
from aioproducer.serializers import string_serializer
from tests.cases import for_each
from tests.unit.config.configuring import configure, refusal

INT32_MAX = 2**31 - 1


class TestConstruction:
    def test_defaults_are_those_of_kafka(self) -> None:
        config = dataclasses.asdict(configure(client_id="me"))
        security = {each.name for each in dataclasses.fields(SecurityOptions)}
        assert {name: value for name, value in config.items() if name not in security} == {
            "bootstrap_servers": ("localhost:9092",),
            "client_id": "me",
            "client_rack": None,
            "acks": "all",
            "enable_idempotence": None,
            "max_in_flight_requests_per_connection": 5,
            "retries": 2_147_483_647,
            "delivery_timeout_ms": 120_000,
            "request_timeout_ms": 30_000,
            "max_block_ms": 60_000,
            "buffer_memory": 33_554_432,
            "batch_size": 16_384,
            "batch_max_size": 262_144,
            "linger_ms": 5,
            "max_request_size": 1_048_576,
            "compression_type": "none",
            "compression_gzip_level": -1,
            "compression_lz4_level": 9,
            "compression_zstd_level": 3,
            "key_serializer": None,
            "value_serializer": None,
            "partitioner": None,
            "partitioner_ignore_keys": False,
            "partitioner_adaptive_partitioning_enable": True,
            "partitioner_availability_timeout_ms": 0,
            "partitioner_rack_aware": False,
            "interceptors": (),
            "enable_metrics_push": True,
            "retry_backoff_ms": 100,
            "retry_backoff_max_ms": 1_000,
            "reconnect_backoff_ms": 50,
            "reconnect_backoff_max_ms": 1_000,
            "start_wait": True,
            "bootstrap_timeout_ms": 0,
            "socket_connection_setup_timeout_ms": 10_000,
            "dial": None,
            "socket_connection_setup_timeout_max_ms": 30_000,
            "connections_max_idle_ms": 540_000,
            "send_buffer_bytes": -1,
            "receive_buffer_bytes": 32_768,
            "metadata_max_age_ms": 300_000,
            "metadata_max_idle_ms": 300_000,
            "metadata_recovery_strategy": "rebootstrap",
            "metadata_recovery_rebootstrap_trigger_ms": 300_000,
            "metadata_cluster_check_enable": True,
            "allow_auto_create_topics": True,
            "transactional_id": None,
            "transaction_timeout_ms": 60_000,
            "transaction_two_phase_commit_enable": False,
        }

    def test_defaults_log_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        configure()
        assert not caplog.records

    def test_invalid_value_is_reported_with_option_and_expectation(self) -> None:
        assert refusal(linger_ms="5") == "linger_ms = '5': expected a number from 0 to 2^63 - 1"
        assert refusal(batch_size=-1) == "batch_size = -1: expected an integer from 0 to 2^31 - 1"
        assert refusal(bootstrap_servers=["a"]).startswith("bootstrap_servers = ['a']: 'a' has no port")

    def test_batch_max_size_has_to_reach_batch_size(self) -> None:
        assert refusal(batch_size=2, batch_max_size=1).startswith(
            "batch_max_size = 1: expected at least batch_size = 2"
        )
        assert ProducerConfig(bootstrap_servers="a:1", batch_size=2, batch_max_size=2).batch_max_size == 2

    @pytest.mark.parametrize("rack", [None, "", "  "])
    def test_rack_aware_partitioning_needs_a_rack(self, rack: str | None) -> None:
        assert "needs client_rack" in refusal(partitioner_rack_aware=True, client_rack=rack)
        assert configure(partitioner_rack_aware=True, client_rack=" a ").client_rack == "a"

    def test_unknown_keyword_is_answered_with_the_nearest(self) -> None:
        assert refusal(linger=5) == "unknown option 'linger'; did you mean 'linger_ms'?"

    def test_keyword_known_only_to_kafka_is_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        assert configure(client_id="a", client_dns_lookup="b") == configure(client_id="a")
        assert caplog.messages == ["config.without_effect name=client_dns_lookup"]

    @pytest.mark.parametrize(
        ("given", "named"),
        [
            ({"acks": 1}, "acks = 1"),
            ({"enable_idempotence": False}, "enable_idempotence"),
            ({"retries": 0}, "retries"),
        ],
    )
    def test_transactions_need_idempotence(self, given: dict[str, Any], named: str) -> None:
        told = refusal(transactional_id="tx", **given)
        assert "transactional_id = 'tx' needs idempotence" in told
        assert named in told

    @pytest.mark.parametrize("given", ["", 5, "\ud800", "x" * 0x8000])
    def test_transactional_id_has_to_be_a_short_string(self, given: object) -> None:
        assert "a string of 1 to 32767 bytes in UTF-8" in refusal(transactional_id=given)

    def test_config_error_is_a_value_error_and_a_producer_error(self) -> None:
        assert issubclass(ConfigError, ValueError)
        assert issubclass(ConfigError, ProducerError)

    def test_configuration_is_frozen(self) -> None:
        config = configure()
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.linger_ms = 7  # type: ignore[misc]
        with pytest.raises((AttributeError, TypeError)):
            config.anything = 7  # type: ignore[attr-defined]

    def test_configurations_can_be_compared_varied_and_pickled(self) -> None:
        config = configure(client_id="me", key_serializer=string_serializer, acks=1)
        assert config == configure(client_id="me", key_serializer=string_serializer, acks="1")
        assert dataclasses.replace(config, linger_ms=0) == configure(
            client_id="me", key_serializer=string_serializer, acks=1, linger_ms=0
        )
        assert pickle.loads(pickle.dumps(config)) == config
        assert hash(pickle.loads(pickle.dumps(config))) == hash(config)

    def test_clients_without_a_name_get_different_ones(self) -> None:
        assert configure().client_id != configure().client_id


class TestIdempotence:
    @for_each(
        ("options", "idempotent"),
        [
            ({}, True),
            ({"acks": "-1"}, True),
            ({"acks": 1}, False),
            ({"acks": 0}, False),
            ({"retries": 0}, False),
            ({"enable_idempotence": True}, True),
            ({"enable_idempotence": False}, False),
            ({"enable_idempotence": False, "max_in_flight_requests_per_connection": 6}, False),
            ({"acks": 1, "max_in_flight_requests_per_connection": 6}, False),
        ],
    )
    def test_idempotence_is_on_by_default(self, options: dict[str, object], *, idempotent: bool) -> None:
        config = configure(**options)
        assert config.idempotent is idempotent
        assert config.sender_settings().idempotent is config.batching_settings().idempotent is idempotent

    @pytest.mark.parametrize("options", [{"acks": 1}, {"retries": 0}])
    def test_idempotence_disabled_by_other_options_is_logged(
        self, options: dict[str, object], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        config = configure(**options)
        assert caplog.messages == [f"config.idempotence_off acks={config.acks} retries={config.retries}"]

    def test_idempotence_disabled_explicitly_is_not_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        configure(enable_idempotence=False, acks=1)
        assert not caplog.records

    @for_each(
        ("options", "message"),
        [
            ({"acks": 1}, "needs acks = 'all', not 1; change one of the two"),
            ({"acks": 0}, "needs acks = 'all', not 0"),
            ({"retries": 0}, "needs retries"),
            ({"max_in_flight_requests_per_connection": 6}, "may have at most 5"),
        ],
    )
    def test_idempotence_with_incompatible_options_is_refused(
        self, options: dict[str, object], message: str
    ) -> None:
        assert message in refusal(enable_idempotence=True, **options)

    def test_default_idempotence_refuses_more_than_5_in_flight(self) -> None:
        message = refusal(max_in_flight_requests_per_connection=6)
        assert message.endswith("lower it, or set enable_idempotence = False")


class TestTimes:
    def test_delivery_timeout_below_one_attempt_is_refused(self) -> None:
        assert refusal(delivery_timeout_ms=30_004) == (
            "delivery_timeout_ms = 30004: expected at least linger_ms + request_timeout_ms = 5 + 30000; "
            "raise it, or lower one of them"
        )
        assert configure(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005

    @pytest.mark.parametrize(
        ("options", "delivery_timeout_ms"),
        [
            ({"request_timeout_ms": 200_000}, 200_005),
            ({"linger_ms": 100_000.5}, 130_001),
            ({"request_timeout_ms": INT32_MAX}, INT32_MAX),
        ],
    )
    def test_delivery_timeout_default_is_raised_when_too_short(
        self, options: dict[str, object], delivery_timeout_ms: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert configure(**options).delivery_timeout_ms == delivery_timeout_ms
        assert caplog.messages == [
            f"config.lifted name=delivery_timeout_ms value=120000 needed={delivery_timeout_ms}"
        ]

    @pytest.mark.parametrize(
        "name", ["retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout"]
    )
    def test_initial_backoff_is_limited_to_the_maximum(
        self, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        config = configure(**{f"{name}_ms": 2_000, f"{name}_max_ms": 500})
        assert getattr(config, f"{name}_ms") == getattr(config, f"{name}_max_ms") == 500
        assert caplog.messages == [f"config.limited name={name}_ms value=2000 limit=500 by={name}_max_ms"]

    def test_reconnect_backoff_alone_does_not_grow(self) -> None:
        assert configure(reconnect_backoff_ms=200).reconnect_backoff_max_ms == 200
        assert configure(reconnect_backoff_ms=5_000).reconnect_backoff_ms == 5_000
        assert (
            configure(reconnect_backoff_ms=200, reconnect_backoff_max_ms=900).reconnect_backoff_max_ms == 900
        )


class TestCompression:
    @for_each(
        ("options", "codec", "level"),
        [
            ({}, Codec.NONE, None),
            ({"compression_type": None}, Codec.NONE, None),
            ({"compression_type": "gzip"}, Codec.GZIP, -1),
            ({"compression_type": "gzip", "compression_gzip_level": 9}, Codec.GZIP, 9),
            ({"compression_type": "lz4"}, Codec.LZ4, 9),
            (
                {"compression_type": "lz4", "compression_lz4_level": 10, "compression_zstd_level": 1},
                Codec.LZ4,
                10,
            ),
            ({"compression_type": "zstd", "compression_zstd_level": -5}, Codec.ZSTD, -5),
            ({"compression_type": "snappy", "compression_gzip_level": 1}, Codec.SNAPPY, None),
        ],
    )
    def test_codec_gets_only_its_own_level(
        self, options: dict[str, object], codec: Codec, level: int | None
    ) -> None:
        settings = configure(**options).sender_settings()
        assert (settings.codec, settings.compression_level) == (codec, level)

    @pytest.mark.parametrize(
        "option",
        [{"compression_gzip_level": 0}, {"compression_lz4_level": 18}, {"compression_zstd_level": 23}],
    )
    def test_levels_are_kafkas(self, option: dict[str, object]) -> None:
        ((name, level),) = option.items()
        assert refusal(**option).startswith(f"{name} = {level}: expected an integer from ")

    def test_codec_without_its_package_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(codec: Codec, level: int | None) -> None:
            raise ConfigError(f"{codec.name} needs a package")

        monkeypatch.setattr(module, "compressor", missing)
        assert refusal(compression_type="snappy") == "SNAPPY needs a package"


class TestPartitioner:
    def test_partitioner_defaults_to_murmur2(self) -> None:
        assert isinstance(configure().effective_partitioner(), Murmur2Partitioner)

    def test_keys_can_be_ignored(self) -> None:
        assert isinstance(configure(partitioner_ignore_keys=True).effective_partitioner(), AnyPartition)

    def test_partitioner_ignore_keys_does_not_apply_to_an_own_one(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        partitioner = RoundRobinPartitioner()
        config = configure(partitioner=partitioner, partitioner_ignore_keys=True)
        assert config.effective_partitioner() is partitioner
        assert caplog.messages == ["config.ignored name=partitioner_ignore_keys by=partitioner"]

    def test_partitioner_option_alone_logs_no_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        configure(partitioner=RoundRobinPartitioner())
        configure(partitioner_ignore_keys=True)
        assert not caplog.records


class TestSecrets:
    def secret(self, **more: Any) -> ProducerConfig:
        return configure(
            client_id="me",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="u",
            sasl_password="hunter2",
            **more,
        )

    def test_secrets_are_never_shown(self) -> None:
        config = self.secret()
        assert "hunter2" not in repr(config)
        assert "hunter2" not in str(dataclasses.asdict(config))
        assert "sasl_password=Secret('***')" in repr(config)

    def test_secrets_count_in_comparisons(self) -> None:
        assert self.secret() == self.secret(linger_ms=5)
        assert hash(self.secret()) == hash(self.secret())
        assert self.secret() != dataclasses.replace(self.secret(), sasl_password=Secret("hunter3"))
        assert dataclasses.replace(self.secret(), linger_ms=7) == self.secret(linger_ms=7)
        assert copy.copy(self.secret()) == copy.deepcopy(self.secret()) == self.secret()

    def test_config_with_secrets_cannot_be_pickled(self) -> None:
        with pytest.raises(
            TypeError, match=r"with sasl_password cannot be pickled: pass its source instead"
        ) as raised:
            pickle.dumps(self.secret())
        assert "hunter2" not in str(raised.value)

    def test_configuration_with_an_ssl_context_is_not_picklable(self) -> None:
        context = ssl.create_default_context()
        with pytest.raises(TypeError, match="with ssl_context cannot be pickled"):
            pickle.dumps(configure(security_protocol="SSL", ssl_context=context))

    def test_configuration_with_a_credentials_callable_is_picklable(self) -> None:
        config = configure(
            client_id="me",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_credentials=asked_for_a_pair,
        )
        assert pickle.loads(pickle.dumps(config)) == config

    @for_each(
        "option",
        [
            {"sasl_password": b"hunter2"},
            {"sasl_jaas_config": 'Plain required username="u" password="hunter2"'},
            {"sasl_credentials": ("u", "hunter2")},
            {"sasl_oauth_token_provider": "hunter2"},
            {"ssl_keystore_location": "-----BEGIN PRIVATE KEY-----hunter2"},
            {"sasl_oauthbearer_token_endpoint_url": "https://u:hunter2@a"},
        ],
    )
    def test_invalid_secret_is_not_shown(self, option: dict[str, object]) -> None:
        message = refusal(**option)
        assert message.startswith(f"{next(iter(option))} = ***: ")
        assert "hunter2" not in message


def asked_for_a_pair() -> tuple[str, str]:
    return "u", "hunter2"
