"""Options of mappings as written for other clients of Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.security.secret import Secret
from aioproducer.config import ProducerConfig
from aioproducer.config.mapping import read_mapping, with_references
from aioproducer.config.names import (
    HARMLESS,
    KAFKA_NAMES,
    OTHER_CLIENTS,
    OTHER_CLIENTS_PREFIXES,
    REFUSED_OF_OTHERS,
)
from aioproducer.config.options import KINDS
from aioproducer.errors import ConfigError
from tests.cases import for_each

SERVERS: dict[str, object] = {"bootstrap.servers": "a:9092"}
LOGIN: dict[str, object] = {
    **SERVERS,
    "security.protocol": "sasl_plaintext",
    "sasl.username": "alice",
    "sasl.password": "hunter2",
}


def configured(options: dict[str, object], **arguments: Any) -> ProducerConfig:
    return ProducerConfig.from_mapping({**SERVERS, **options}, **arguments)


def mistakes(options: dict[Any, object], **arguments: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_mapping(options, **arguments)
    return str(raised.value).splitlines()


class TestNamesOfOtherClients:
    def test_names_share_one_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        names = sorted(OTHER_CLIENTS | HARMLESS) + [f"{prefix}x" for prefix in OTHER_CLIENTS_PREFIXES]
        configured(dict.fromkeys(names, "hunter2"))
        assert caplog.messages == [f"config.other_clients names={','.join(names)}"]
        assert "hunter2" not in caplog.text

    def test_names_with_underscores_are_known(self, caplog: pytest.LogCaptureFixture) -> None:
        configured({"group_id": "g", "session_timeout_ms": 6_000, "log_level": 7})
        assert caplog.messages == ["config.other_clients names=group_id,session_timeout_ms,log_level"]

    @for_each(
        ("name", "nearest"),
        [
            ("lingr.ms", "linger.ms"),
            ("sesion.timeout.ms", "session.timeout.ms"),
            ("compresion.codec", "compression.codec"),
            ("bach_size", "batch_size"),
            ("linger", "linger.ms"),
        ],
    )
    def test_misspelt_name_is_a_mistake(self, name: str, nearest: str) -> None:
        assert mistakes({**SERVERS, name: 1}) == [f"unknown option {name!r}; did you mean {nearest!r}?"]

    def test_names_are_strings(self) -> None:
        assert mistakes({**SERVERS, 5: "x"}) == ["5 is not the name of an option; names are strings"]


class TestTranslation:
    @for_each(
        ("name", "value", "ours", "expected"),
        [
            ("compression.codec", "zstd", "compression_type", "zstd"),
            ("max.in.flight", "3", "max_in_flight_requests_per_connection", 3),
            ("message.max.bytes", 2_000_000, "max_request_size", 2_000_000),
            ("message.send.max.retries", "7", "retries", 7),
            ("message.timeout.ms", "300000", "delivery_timeout_ms", 300_000),
            ("message.timeout.ms", 0, "delivery_timeout_ms", 2**31 - 1),
            ("queue.buffering.max.kbytes", "1024", "buffer_memory", 1_048_576),
            ("queue.buffering.max.ms", "0.5", "linger_ms", 0.5),
            ("queue.buffering.max.ms", 5, "linger_ms", 5),
            ("request.required.acks", "-1", "acks", "all"),
            ("socket.receive.buffer.bytes", 0, "receive_buffer_bytes", -1),
            ("socket.send.buffer.bytes", "65536", "send_buffer_bytes", 65_536),
            ("socket.timeout.ms", "40000", "request_timeout_ms", 40_000),
            ("topic.metadata.refresh.interval.ms", "-1", "metadata_max_age_ms", 2**31 - 1),
            ("topic.metadata.refresh.interval.ms", 60_000, "metadata_max_age_ms", 60_000),
            ("max_batch_size", 100, "batch_size", 100),
            ("sasl.oauthbearer.grant.type", "client_credentials", "sasl_oauthbearer_jwt_retriever_class",
             "ClientCredentialsJwtRetriever"),
            ("sasl.oauthbearer.grant.type", "urn:ietf:params:oauth:grant-type:jwt-bearer",
             "sasl_oauthbearer_jwt_retriever_class", "JwtBearerJwtRetriever"),
            ("partitioner", "murmur2_random", "partitioner_ignore_keys", False),
        ],
    )  # fmt: skip
    def test_value_keeps_the_meaning_of_the_other_client(
        self, name: str, value: object, ours: str, expected: object
    ) -> None:
        assert getattr(configured({name: value}), ours) == expected

    @for_each("name", sorted(KAFKA_NAMES))
    def test_name_of_a_bad_value_is_as_written(self, name: str) -> None:
        reading = read_mapping({name: "x"}, KINDS)
        assert reading.mistakes == []
        assert set(reading.written.values()) <= {name}

    def test_bad_value_is_named_as_written(self) -> None:
        assert mistakes({**SERVERS, "queue.buffering.max.kbytes": "many"}) == [
            "queue.buffering.max.kbytes = 'many': expected an integer from 1 to 2^63 - 1"
        ]

    def test_kafkas_name_wins_with_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        config = configured({"socket.timeout.ms": 60_000, "request.timeout.ms": 20_000})
        assert config.request_timeout_ms == 20_000
        assert caplog.messages == ["config.ignored name=socket.timeout.ms by=request.timeout.ms"]

    def test_aliases_of_one_option_have_to_agree(self) -> None:
        equal = {"sasl.plain.username": "a", "metadata.broker.list": "b:1"}
        assert read_mapping(equal, KINDS).mistakes == []
        assert mistakes({**SERVERS, "ssl.ca.location": "a.pem", "ssl.cafile": "b.pem"}) == [
            "'ssl_truststore_location' is given twice: as 'ssl.ca.location' and as 'ssl.cafile'"
        ]

    @pytest.mark.parametrize(
        ("codec", "level"), [("gzip", "compression_gzip_level"), ("zstd", "compression_zstd_level")]
    )
    def test_level_belongs_to_the_codec(self, codec: str, level: str) -> None:
        assert getattr(configured({"compression.level": "7", "compression.codec": codec}), level) == 7
        assert getattr(configured({"compression.type": codec, "compression.level": 7}), level) == 7

    @pytest.mark.parametrize("options", [{}, {"compression.type": "gzip", "compression.level": "-1"}])
    def test_level_without_use_is_left_out(self, options: dict[str, object]) -> None:
        assert configured({"compression.level": 7, **options}).compression_gzip_level == -1

    def test_certificates_of_librdkafka(self) -> None:
        reading = read_mapping(
            {
                "ssl.ca.location": "ca.pem",
                "ssl.certificate.location": "c.pem",
                "ssl.key.location": "k.pem",
                "ssl.key.password": "p",
                "ssl.check.hostname": False,
            },
            KINDS,
        )
        assert reading.applied == {
            "ssl_truststore_location": "ca.pem",
            "ssl_keystore_certificate_chain": "c.pem",
            "ssl_keystore_key": "k.pem",
            "ssl_key_password": "p",
            "ssl_endpoint_identification_algorithm": "",
        }
        assert read_mapping({"ssl.ca.location": "probe"}, KINDS).applied == {"ssl_truststore_location": None}

    def test_none_of_librdkafka_disables_the_host_name_check(self) -> None:
        config = configured({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"})
        assert config.ssl_endpoint_identification_algorithm == ""

    def test_keytab_of_librdkafka_becomes_a_login_module(self) -> None:
        applied = read_mapping(
            {
                "sasl.mechanisms": "GSSAPI",
                "sasl.kerberos.keytab": "/etc/k.keytab",
                "sasl.kerberos.principal": 'a"b',
            },
            KINDS,
        ).applied
        assert applied["sasl_jaas_config"] == (
            'Krb5LoginModule required keyTab="/etc/k.keytab" principal="a\\"b" useKeyTab="true";'
        )

    def test_extensions_of_librdkafka_become_a_login_module(self) -> None:
        options: dict[str, object] = {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "id",
            "sasl.oauthbearer.client.secret": "hunter2",
            "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
        }
        sasl = configured(options).security_settings().sasl
        assert sasl is not None
        assert sasl.extensions == {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}
        assert mistakes({**SERVERS, **options, "sasl.oauthbearer.extensions": "hunter2"}) == [
            "sasl.oauthbearer.extensions: expected NAME=VALUE, several separated by commas"
        ]


class TestRefused:
    @for_each("name", sorted(REFUSED_OF_OTHERS))
    def test_option_that_changes_promises_is_refused(self, name: str) -> None:
        value = "false" if name == "enable.ssl.certificate.verification" else "hunter2"
        assert mistakes({**SERVERS, name: value}) == [f"{name}: not supported, {REFUSED_OF_OTHERS[name]}"]

    @for_each("name", sorted(REFUSED_OF_OTHERS))
    def test_option_that_switches_nothing_on_passes(self, name: str) -> None:
        configured({name: None})
        configured({name: "true" if name == "enable.ssl.certificate.verification" else ""})

    def test_callbacks_are_refused(self) -> None:
        (message,) = mistakes({**SERVERS, "error_cb": print})
        assert message.startswith("error_cb: not supported, ")


class TestPrefixes:
    @for_each(
        ("name", "prefix"),
        [
            ("producer.linger.ms", "producer."),
            ("kafka.linger.ms", "kafka."),
            ("kafka.producer.linger.ms", "kafka."),
            ("spring.kafka.producer.batch-size", "spring.kafka."),
            ("spring.kafka.properties.linger.ms", "spring.kafka."),
            ("spark.kafka.linger.ms", "spark.kafka."),
            ("common.kafka.acks", "common.kafka."),
            ("default.bootstrap.servers", "default."),
            ("[default]acks", "[default]"),
            ("[my cluster]acks", "[my cluster]"),
        ],
    )
    def test_prefix_is_named_once_with_the_argument(self, name: str, prefix: str) -> None:
        (message,) = mistakes({name: "1", f"{prefix}retries": "3"})
        assert message.startswith(f"{name!r} and 1 more: options ")
        assert f"prefix={prefix!r}" in message
        assert "--config-prefix" in message

    def test_options_behind_the_prefix_count(self, caplog: pytest.LogCaptureFixture) -> None:
        config = ProducerConfig.from_mapping(
            {"producer.bootstrap.servers": "a:1", "producer.linger.ms": "7", "acks": "1", "other": "x"},
            prefix="producer.",
        )
        assert (config.bootstrap_servers, config.linger_ms, config.acks) == (("a:1",), 7, "all")
        assert caplog.messages == []

    def test_names_of_spring(self) -> None:
        reading = read_mapping(
            {
                "spring.kafka.bootstrap-servers": "a:1",
                "spring.kafka.security.protocol": "SSL",
                "spring.kafka.ssl.trust-store-location": "t.p12",
                "spring.kafka.ssl.key-store-password": "p",
                "spring.kafka.client-id": "common",
                "spring.kafka.producer.client-id": "producer",
                "spring.kafka.producer.properties.linger.ms": "9",
                "spring.kafka.consumer.group-id": "g",
                "spring.kafka.listener.ack-mode": "batch",
            },
            KINDS,
            prefix="spring.kafka.",
        )
        assert reading.applied == {
            "bootstrap_servers": "a:1",
            "security_protocol": "SSL",
            "ssl_truststore_location": "t.p12",
            "ssl_keystore_password": "p",
            "client_id": "producer",
            "linger_ms": "9",
        }
        assert reading.of_others == ["spring.kafka.consumer.group-id", "spring.kafka.listener.ack-mode"]
        assert reading.mistakes == []

    def test_later_prefix_wins(self) -> None:
        options: dict[str, object] = {"producer.acks": "1", "acks": "0", "bootstrap.servers": "a:1"}
        assert ProducerConfig.from_mapping(options, prefix=["", "producer."]).acks == 1
        assert ProducerConfig.from_mapping(options, prefix=["producer.", ""]).acks == 0

    def test_mistake_behind_the_prefix_is_named_as_written(self) -> None:
        assert mistakes({"kafka.bootstrap.servers": "a:1", "kafka.acks": "7"}, prefix="kafka.") == [
            "kafka.acks = '7': expected all (the same as -1), 0 or 1"
        ]

    def test_missing_servers_name_the_prefix(self) -> None:
        (message,) = mistakes({"bootstrap.servers": "a:1"}, prefix="kafka.")
        assert message.endswith("no option of that name is behind the prefix 'kafka.'")
        (message,) = mistakes({"bootstrap.servers": "a:1"}, prefix=["kafka.", "producer."])
        assert message.endswith("no option of that name is behind the prefix 'kafka.' or 'producer.'")

    def test_section_of_a_consumer_passes(self) -> None:
        assert read_mapping({**SERVERS, "[consumer]group.id": "g"}, KINDS).mistakes == []


class TestMistakes:
    def test_all_mistakes_are_reported_at_once(self) -> None:
        found = mistakes(
            {
                "bootstrap.servers": "a",
                "lingr.ms": "5",
                "producer.acks": "1",
                "error_cb": print,
                "interceptor.classes": "com.example.Audit",
                "retries": "many",
                "sasl.password": 7,
                "ssl.truststore.location": "/missing/ca.pem",
                "ssl.keystore.location": "/missing/me.pem",
                "security.protocol": "ssl",
                "enable.idempotence": "true",
                "acks": "1",
                "max.in.flight": "9",
                "buffer.memory": "1",
                "delivery.timeout.ms": "1",
            }
        )
        assert [message.partition(" ")[0] for message in found] == [
            "unknown",
            "error_cb:",
            "interceptor.classes",
            "'producer.acks':",
            "bootstrap.servers",
            "retries",
            "sasl.password",
            "enable_idempotence",
            "delivery_timeout_ms",
            "buffer.memory",
            "ssl_truststore_location",
            "ssl_keystore_location",
        ]

    def test_keyword_arguments_report_all_at_once(self) -> None:
        with pytest.raises(ConfigError) as raised:
            ProducerConfig(bootstrap_servers="a", acks=7, enable_idempotence=True, retries=0)  # type: ignore[arg-type]
        assert [message.partition(" ")[0] for message in str(raised.value).splitlines()] == [
            "bootstrap_servers",
            "acks",
            "enable_idempotence",
        ]

    def test_invalid_option_is_not_checked_against_rules(self) -> None:
        assert len(mistakes({**SERVERS, "acks": "2", "transactional.id": "t"})) == 1
        assert len(mistakes({**LOGIN, "sasl.mechanism": "FOO"})) == 1

    def test_secrets_are_in_no_mistake(self) -> None:
        found = mistakes(
            {
                **LOGIN,
                "sasl.jaas.config": "hunter2",
                "basic.auth.user.info": "a:hunter2",
                "ssl.key.pem": 5,
                "sasl.oauthbearer.client.secret": ["hunter2"],
                "sasl.plain.pasword": "hunter2",
                "sasl.oauthbearer.config": "hunter2",
            }
        )
        assert len(found) == 5
        assert "hunter2" not in "\n".join(found)


class TestReferences:
    @for_each(
        ("value", "message"),
        [
            ("${env:HUNTER2}", "contains a reference ${env:…} to a config provider (KIP-297), which the caller has"),
            ("a${file:/hunter2:key}b", "contains a reference ${file:…} to a config provider (KIP-297), which the"),
            ("${directory:/x:y}", "contains a reference ${directory:…} to a config provider (KIP-297), which the"),
            ("${vault:x}", "contains a reference ${vault:…} to a config provider (KIP-297) that is a Java class"),
            ("${PASSWORD}", "contains the placeholder ${PASSWORD}; put in the value, or write ${env:PASSWORD}"),
            ("${PASSWORD:hunter2}", "contains the placeholder ${PASSWORD}; put in the value"),
            ("{{ API_SECRET }}", "contains a placeholder {{ … }} of a template"),
        ],
    )  # fmt: skip
    def test_reference_is_a_mistake_by_default(self, value: str, message: str) -> None:
        options = {
            **LOGIN,
            "sasl.mechanism": "PLAIN",
            "config.providers": "vault",
            "config.providers.vault.class": "com.example.VaultConfigProvider",
        }
        (found,) = mistakes({**options, "sasl.password": value})
        assert found.startswith(f"sasl.password: {message}")
        assert "hunter2" not in found.lower()

    @for_each("value", ["${", "$a", "${}", "${a b}", "pa${ss:x", "{{", "${unknown:x}", "${lower}"])
    def test_text_without_a_reference_is_kept(self, value: str) -> None:
        password = configured({**LOGIN, "sasl.mechanism": "PLAIN", "sasl.password": value}).sasl_password
        assert password is not None
        assert password.reveal() == value

    def test_secret_objects_are_kept_unchanged(self) -> None:
        password = Secret("${env:HOME}")
        config = configured({**LOGIN, "sasl.mechanism": "PLAIN", "sasl.password": password})
        assert config.sasl_password == password

    def test_unknown_options_may_have_references(self) -> None:
        configured({"basic.auth.user.info": "{{ KEY }}:${env:SECRET}"})

    def test_resolved_value_is_converted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KBYTES", "1024")
        config = configured({"queue.buffering.max.kbytes": "${env:KBYTES}"}, config_providers=["env"])
        assert config.buffer_memory == 1_048_576

    def test_command_line_resolves_references(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SERVERS", "a:1")
        options = {"bootstrap.servers": "${env:SERVERS}", "schema.registry.url": "${env:NONE}"}
        assert with_references(options, ["env"]) == {**options, "bootstrap.servers": "a:1"}
        with pytest.raises(ConfigError, match="contains a reference"):
            with_references(options, [])


def test_servers_may_be_given_beside_a_file() -> None:
    config = ProducerConfig.from_properties("acks=1\n", bootstrap_servers=["a:1", "b:2"])
    assert (config.bootstrap_servers, config.acks) == (("a:1", "b:2"), 1)
    replaced = ProducerConfig.from_mapping(dict(SERVERS), bootstrap_servers="b:2")
    assert replaced.bootstrap_servers == ("b:2",)
