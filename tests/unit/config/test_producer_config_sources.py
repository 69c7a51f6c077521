"""Configurations from mappings and from properties, as text or as values."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer._core.partitioning import RoundRobinPartitioner
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.serializers import bytes_serializer, string_serializer


class TestFromMapping:
    def test_kafkas_spelling_and_text_as_in_a_properties_file(self) -> None:
        config = ProducerConfig.from_mapping(
            {
                "bootstrap.servers": "a:9092, b:9092",
                "client.id": "",
                "acks": " 1 ",
                "linger.ms": "0.5",
                "enable.idempotence": "false",
                "compression.type": " lz4 ",
                "retries": "3",
                "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
                "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
                "partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
                "interceptor.classes": "",
                "security.protocol": "plaintext",
            }
        )
        assert config == ProducerConfig(
            bootstrap_servers=["a:9092", "b:9092"],
            client_id="",
            acks=1,
            linger_ms=0.5,
            enable_idempotence=False,
            compression_type="lz4",
            retries=3,
            key_serializer=string_serializer,
            value_serializer=bytes_serializer,
            partitioner=config.partitioner,
        )
        assert isinstance(config.partitioner, RoundRobinPartitioner)

    def test_mapping_accepts_python_names_and_values(self) -> None:
        given = {
            "bootstrap_servers": ["a:9092"],
            "linger_ms": 7,
            "client_id": "me",
            "key_serializer": str.encode,
        }
        assert ProducerConfig.from_mapping(given) == ProducerConfig(**given)  # type: ignore[arg-type]

    def test_text_that_cannot_be_read_is_named(self) -> None:
        with pytest.raises(ConfigError, match=r"^linger\.ms = 'soon': expected a number from 0"):
            ProducerConfig.from_mapping({"bootstrap.servers": "a:9092", "linger.ms": " soon "})

    @pytest.mark.parametrize("name", ["key.serializer", "key_serializer", "partitioner.class"])
    def test_java_class_is_refused_under_the_written_name(self, name: str) -> None:
        with pytest.raises(ConfigError) as raised:
            ProducerConfig.from_mapping({"bootstrap.servers": "a:9092", name: "com.example.Mine"})
        assert str(raised.value).startswith(f"{name} = 'com.example.Mine': unknown name; expected ")

    @pytest.mark.parametrize("mapping", [{}, {"acks": "all"}])
    def test_bootstrap_servers_are_required(self, mapping: dict[str, object]) -> None:
        with pytest.raises(ConfigError, match=r"^bootstrap\.servers is missing"):
            ProducerConfig.from_mapping(mapping)

    def test_name_without_effect_is_one_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        ProducerConfig.from_mapping({"bootstrap.servers": "a:9092", "client.dns.lookup": "use_all_dns_ips"})
        assert caplog.messages == ["config.without_effect name=client.dns.lookup"]


class TestFromProperties:
    TEXT = "bootstrap.servers = a:9092,\\\n    b:9092\n# how durable\nacks : all\nlinger.ms 20\n"

    def test_text_of_properties_is_accepted(self) -> None:
        config = ProducerConfig.from_properties(self.TEXT)
        assert (config.bootstrap_servers, config.acks, config.linger_ms) == (("a:9092", "b:9092"), "all", 20)

    def test_error_begins_with_the_path_in_each_line(self, tmp_path: Path) -> None:
        path = tmp_path / "producer.properties"
        path.write_text("bootstrap.servers=a:9092\nliger.ms=1\nacks=many\n")
        for source in (path, str(path)):
            with pytest.raises(ConfigError) as raised:
                ProducerConfig.from_properties(source)
            first, second = str(raised.value).splitlines()
            assert first.startswith(f"{path}: unknown option 'liger.ms'")
            assert second.startswith(f"{path}: acks = 'many'")

    @pytest.mark.parametrize(
        "line", ["linger.ms=5 # five", 'acks="all"', "acks='all'", "bootstrap.servers='a:9092'"]
    )
    def test_error_names_quotes_and_comments(self, line: str) -> None:
        with pytest.raises(ConfigError, match=r"; comments and quotes belong to the value$"):
            ProducerConfig.from_properties(f"bootstrap.servers=a:9092\n{line}\n")

    def test_error_of_a_plain_value_has_no_hint(self) -> None:
        with pytest.raises(ConfigError, match=r"^acks = 'many#'(?!.*comments)"):
            ProducerConfig.from_properties("bootstrap.servers=a:9092\nacks=many#\n")

    def test_file_equals_its_text(self, tmp_path: Path) -> None:
        path = tmp_path / "producer.properties"
        path.write_text(f"{self.TEXT}client.id=me\n")
        assert ProducerConfig.from_properties(path) == ProducerConfig.from_properties(
            f"{self.TEXT}client.id=me\n"
        )
