"""Configuration files as vendors hand them out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aioproducer._core.security.secret import Secret
from aioproducer.config import ProducerConfig, security
from aioproducer.config.options import KINDS
from aioproducer.errors import ConfigError
from tests.cases import for_each
from tests.unit._core.security.certificates import Authority
from tests.unit.config.vendor_files import DIRECTORY, FILES, PASSWORD, VendorFile, path, write_stores

PAGE = (Path(__file__).parents[3] / "docs/reference/configuration.md").read_text(encoding="utf-8")
REFUSED = ("strimzi-scram.properties", "strimzi-kubernetes.properties")
JKS = b"\xfe\xed\xfe\xed\x00\x00\x00\x02"


@pytest.fixture(autouse=True)
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(security, "find_spec", lambda _: "found")  # the extra `msk`


def plain(config: ProducerConfig) -> dict[str, object]:
    values = {name: getattr(config, name) for name in KINDS if name != "client_id"}
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in values.items()}


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
class TestValidFiles:
    def test_file_equals_options_written_by_hand(self, file: VendorFile, tmp_path: Path) -> None:
        write_stores(file.stores, tmp_path)
        config = ProducerConfig.from_properties(path(file.name), **file.arguments)
        by_hand = ProducerConfig(**file.expected)
        assert plain(config) == plain(by_hand)
        assert config.client_id == by_hand.client_id or config.client_id.startswith("aioproducer-")
        config.security_settings()

    def test_file_logs_names_only(
        self, file: VendorFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        write_stores(file.stores, tmp_path)
        ProducerConfig.from_properties(path(file.name), **file.arguments)
        others = [f"config.other_clients names={','.join(file.others)}"] if file.others else []
        assert sorted(caplog.messages) == sorted(
            [*others, *(f"config.without_effect name={name}" for name in file.without_effect)]
        )

    def test_text_of_file_is_read_alike(self, file: VendorFile, tmp_path: Path) -> None:
        write_stores(file.stores, tmp_path)
        text = path(file.name).read_text(encoding="utf-8")
        config = ProducerConfig.from_properties(text, **file.arguments)
        assert plain(config) == plain(ProducerConfig.from_properties(path(file.name), **file.arguments))


def test_java_key_store_is_answered_with_the_conversion(tmp_path: Path) -> None:
    (tmp_path / "client.truststore.jks").write_bytes(JKS)
    write_stores(("client.keystore.p12",), tmp_path)
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_properties(path("aiven.properties"))
    assert "keytool -importkeystore -srckeystore client.truststore.jks" in str(raised.value)
    assert PASSWORD not in str(raised.value)


def test_missing_stores_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_properties(path("aiven.properties"))
    assert [line.split(" ")[1] for line in str(raised.value).splitlines()] == [
        "ssl_truststore_location",
        "ssl_keystore_location",
    ]


def test_references_are_resolved_when_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stores(("user.p12",), tmp_path)
    monkeypatch.setenv("KAFKA_USER", "my-user")
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    authority = tmp_path / "ca.crt"
    authority.write_text(Authority().pem)
    text = path("strimzi-scram.properties").read_text().replace("/opt/kafka/cluster-ca", str(tmp_path))
    config = ProducerConfig.from_properties(text, config_providers=["env", "directory"])
    assert config.sasl_jaas_config is not None
    assert f'username="my-user" password="{PASSWORD}";' in config.sasl_jaas_config.reveal()
    assert config.ssl_truststore_certificates == authority.read_text().strip()


@pytest.mark.parametrize(("name", "provider"), [(REFUSED[0], "env"), (REFUSED[1], "secrets")])
def test_references_are_refused_by_default(name: str, provider: str) -> None:
    with pytest.raises(ConfigError, match=rf"contains a reference \$\{{{provider}:…\}} to a config provider"):
        ProducerConfig.from_properties(path(name))


def test_placeholders_of_the_console_are_named(tmp_path: Path) -> None:
    text = path("confluent-cloud-java.properties").read_text()
    text = text.replace("APIKEY", "{{ CLUSTER_API_KEY }}").replace(PASSWORD, "{{ CLUSTER_API_SECRET }}")
    with pytest.raises(ConfigError, match=r"^sasl\.jaas\.config: contains a placeholder \{\{ … \}\}"):
        ProducerConfig.from_properties(text)


def test_section_without_prefix_is_named() -> None:
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_properties(path("confluent-getting-started-python.ini"))
    assert "prefix='[default]'" in str(raised.value)
    assert "bootstrap.servers is missing" not in str(raised.value)


def test_each_file_is_tested_and_documented() -> None:
    files = {each.name for each in DIRECTORY.iterdir()}
    assert files == {file.name for file in FILES} | set(REFUSED)
    table = PAGE.partition("\n### Files of vendors\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"/vendors/([\w.-]+)", table)) == files


def test_missing_file_is_reported_under_its_name_in_the_file() -> None:
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_properties(path("digitalocean.properties"))
    file = path("digitalocean.properties")
    assert str(raised.value) == f"{file}: ssl.ca.location = 'ca-certificate.crt': No such file or directory"
    text = (
        path("digitalocean.properties").read_text() + "ssl.key.location=key\nssl.certificate.location=cert\n"
    )
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_properties(text)
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == [
        "ssl.ca.location = 'ca-certificate.crt'",
        "ssl.key.location",
    ]


def test_directory_without_hashed_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "ca.pem").write_text(Authority().pem)
    with pytest.raises(
        ConfigError, match=r": ssl\.ca\.location = 'certs': the directory has no hashed cert.*rehash"
    ):
        ProducerConfig.from_properties(path("event-streams-librdkafka.properties"))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('{"bootstrap.servers": "a:9092", "sasl.password": "hunter2"}', "JSON"),
        ('\n{\n  "ProducerConfig": {"BootstrapServers": "a:9092", "SaslPassword": "hunter2"}\n}\n', "JSON"),
        (
            "spring:\n  kafka:\n    bootstrap-servers: a:9092\n    properties:\n      sasl.password: hunter2\n",
            "YAML",
        ),
        (
            "# Strimzi\nconfig:\n\n  # options\n  bootstrap.servers: a:9092\n  sasl.password: hunter2\n",
            "YAML",
        ),
        ("producer:\r\n  bootstrap.servers: a:9092\r\n  sasl.password: hunter2\r\n", "YAML"),
    ],
)
def test_other_format_is_named(text: str, form: str, tmp_path: Path) -> None:
    file = tmp_path / "options"
    file.write_bytes(text.encode())
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_properties(file)
    assert str(raised.value) == (
        f"{file}: the file is {form}; load it, and give its options to ProducerConfig.from_mapping"
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "options"
    file.write_bytes(
        "\ufeffbootstrap.servers=a:9092\n".encode(encoding).replace(b"\xff\xfe\xff\xfe", b"\xff\xfe")
    )
    with pytest.raises(ConfigError, match=r"options: the file is UTF-16; save it as UTF-8$"):
        ProducerConfig.from_properties(file)


def test_properties_with_colons_and_indents_are_no_yaml() -> None:
    text = "bootstrap.servers: a:9092\n  acks: all\nclient.id:\n  linger.ms: 7\n"
    config = ProducerConfig.from_properties(text)
    assert (config.acks, config.linger_ms) == ("all", 7)


@for_each(
    ("name", "nearest"),
    [
        ("BootstrapServers", "bootstrap.servers"),
        ("SaslMechanism", "sasl.mechanism"),
        ("BOOTSTRAP_SERVERS", "bootstrap_servers"),
        ("Bootstrap.Servers", "bootstrap.servers"),
        ("LINGER_MS", "linger_ms"),
    ],
)
def test_name_in_other_letters_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{name}'; did you mean '{nearest}'\\?"):
        ProducerConfig.from_mapping({name: "1"})
