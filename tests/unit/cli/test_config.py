from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from aioproducer.cli.commands import program
from aioproducer.cli.config import show_file, show_options
from aioproducer.config.options import KINDS
from aioproducer.errors import ConfigError


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def shown(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    path = tmp_path / "p"
    path.write_text(text)
    show_file(path)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_every_option_is_listed_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    show_options()
    lines = capsys.readouterr().out.splitlines()
    heads = [line.strip() for line in lines if not line.startswith(" ")]
    assert [head.partition(" = ")[0] for head in heads] == list(KINDS)
    assert "bootstrap_servers = required" in heads
    assert "buffer_memory = 33,554,432 bytes" in heads
    assert "interceptors = none" in heads
    assert any("Time that a partial batch waits for more records." in line for line in lines)
    assert any(KINDS["linger_ms"].expected in line for line in lines)


def test_config_shows_changes_of_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
        bootstrap.servers = a:9092, b:9092
        linger.ms = 20
        acks = all
        client.id = billing
        retry.backoff.ms = 5000
        partitioner.class = org.apache.kafka.clients.producer.RoundRobinPartitioner
        value.serializer = org.apache.kafka.common.serialization.StringSerializer
    """
    lines = shown(tmp_path, text, capsys)
    assert lines[0].endswith("p is fine. It changes:")
    assert "bootstrap_servers a:9092, b:9092 required" in lines
    assert "linger_ms 20 ms 5 ms" in lines
    assert "client_id billing None" in lines
    assert "partitioner RoundRobinPartitioner None" in lines
    assert "value_serializer string_serializer None" in lines
    assert "retry_backoff_ms 1,000 ms 100 ms" in lines, "what applies, not what the file says"
    assert "retry_backoff_ms is 1,000 ms, not 5,000 ms, so that it fits the other options." in lines
    assert not any("idempotent" in line for line in lines)
    assert not any(line.startswith("acks") for line in lines)


def test_default_client_id_is_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not any(line.startswith("client_id") for line in shown(tmp_path, "bootstrap.servers=a:1", capsys))


def test_names_without_effect_are_listed_without_their_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    text = "bootstrap.servers=a:1\nssl.provider=secret\nclient.dns.lookup=use_all_dns_ips"
    lines = shown(tmp_path, text, capsys)
    assert lines[-1] == "Known to Kafka, without effect here: client.dns.lookup, ssl.provider"
    assert not any("secret" in line for line in lines)
    assert not caplog.records, "what is shown need not be logged"


def test_config_shows_adjusted_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(tmp_path, "bootstrap.servers=a:1\nlinger_ms=200000\nacks=1", capsys)
    assert "delivery_timeout_ms is 230,000 ms, not 120,000 ms, so that it fits the other options." in lines
    assert "It is not idempotent: sending a record again may duplicate it." in lines


def test_config_escapes_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(tmp_path, "bootstrap.servers=a:1\nclient.id=a\\u001b[31m", capsys)
    assert r"client_id a\u001b[31m None" in lines


def test_wrong_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("linger.ms=5")
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        show_file(path)


def test_all_mistakes_of_file_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text(
        "bootstrap.servers=a:1\nliger.ms=5\nacks=7\nbatch.size = many\nlinger.ms=3\ninterceptor.classes=I"
    )
    with pytest.raises(ConfigError) as caught:
        show_file(path)
    first, *others = str(caught.value).splitlines()
    assert first == f"{path}: unknown option 'liger.ms'; did you mean 'linger.ms'?"
    assert [line.removeprefix(f"{path}: ").partition(":")[0] for line in others] == [
        "interceptor.classes = 'I'",
        "acks = '7'",
        "batch.size = 'many'",
    ]


def test_contradicting_options_of_file_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("bootstrap.servers=a:1\nenable.idempotence=true\nacks=1")
    with pytest.raises(ConfigError, match="enable_idempotence = True needs acks = 'all'"):
        show_file(path)


def test_options_are_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_options(as_json=True)
    told = {each.pop("name"): each for each in json.loads(capsys.readouterr().out)}
    assert list(told) == list(KINDS)
    assert (told["bootstrap_servers"]["required"], told["bootstrap_servers"]["default"]) == (True, None)
    assert told["max_block_ms"] == {
        "required": False,
        "default": 60_000,
        "unit": "ms",
        "meaning": "Maximum time a call may wait for metadata, async serializers and memory together.",
        "expected": KINDS["max_block_ms"].expected,
    }
    assert told["linger_ms"]["default"] == 5
    assert told["interceptors"]["default"] == []


def test_file_check_is_printed_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p"
    path.write_text(
        "bootstrap.servers=a:1\nlinger.ms=20\nmetric.reporters=r\nclient_dns_lookup=x\n"
        "value.serializer=org.apache.kafka.common.serialization.StringSerializer"
    )
    show_file(path, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "changes": {"bootstrap_servers": ["a:1"], "linger_ms": 20, "value_serializer": "string_serializer"},
        "adjusted_from": {},
        "idempotent": True,
        "without_effect": ["client_dns_lookup", "metric.reporters"],
        "of_other_clients": [],
    }


def test_names_of_other_clients_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "metadata.broker.list=a:1\nqueue.buffering.max.ms=20\ngroup.id=g\nbasic.auth.user.info=a:hunter2\n"
    lines = shown(tmp_path, f"{text}socket.timeout.ms=9000\nrequest.timeout.ms=8000\n", capsys)
    assert lines[-1] == (
        "Of other clients, without effect here: basic.auth.user.info, group.id, socket.timeout.ms"
    )
    assert any("linger_ms" in line and "20 ms" in line for line in lines)
    assert "hunter2" not in "".join(lines)


def test_options_with_prefix_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p"
    path.write_text("[default]\nbootstrap.servers=${env:SERVERS}\nlinger.ms=20\n[consumer]\ngroup.id=g\n")
    with pytest.raises(ConfigError, match="the flag --config-prefix"):
        show_file(path)
    with pytest.raises(ConfigError, match="the flag --config-providers"):
        show_file(path, prefix="[default]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVERS", "a:1")
        show_file(path, prefix="[default]", config_providers=["env"], as_json=True)
    assert json.loads(capsys.readouterr().out)["changes"] == {"bootstrap_servers": ["a:1"], "linger_ms": 20}


def test_secrets_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "bootstrap.servers=a:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=hunter2"
    lines = shown(tmp_path, text, capsys)
    assert "hunter2" not in "\n".join(lines)
    assert any("sasl_password" in line and "***" in line for line in lines)
    show_file(tmp_path / "p", as_json=True)
    assert json.loads(capsys.readouterr().out)["changes"]["sasl_password"] == "***"


def test_error_about_secret_hides_its_value(tmp_path: Path) -> None:
    path = tmp_path / "wrong.properties"
    path.write_text('bootstrap.servers=a:1\nsasl.jaas.config=Plain required password="hunter2"\n')
    with pytest.raises(
        ConfigError, match=r"wrong\.properties: sasl\.jaas\.config = \*\*\*: has to end in a semicolon$"
    ):
        show_file(path)


def test_file_of_a_connect_worker_is_read_by_two_prefixes(tmp_path: Path) -> None:
    file = tmp_path / "worker.properties"
    file.write_text(
        "bootstrap.servers=a:1\nlinger.ms=3\nproducer.linger.ms=7\nproducer.acks=1\nproducer.client.id=connect\n"
    )
    prefixes = ("--config-prefix", "", "--config-prefix", "producer.")
    done = CliRunner().invoke(program, ["config", str(file), "--json", *prefixes])
    assert done.exit_code == 0, done.output
    changes = json.loads(done.output)["changes"]
    assert (changes["linger_ms"], changes["client_id"], changes["bootstrap_servers"]) == (
        7,
        "connect",
        ["a:1"],
    )
