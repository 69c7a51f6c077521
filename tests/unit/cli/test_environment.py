from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.testing import ThreadedCluster
from tests.cases import for_each
from tests.unit.cli.entry_point import run

NAME = "AIOPRODUCER_BOOTSTRAP_SERVERS"
COMMANDS = [
    ("send", "orders"),
    ("perf", "orders"),
    ("audit", "orders", "--run", "r"),
    ("topics",),
    ("tail", "orders"),
    ("transactions", "list"),
    ("transactions", "describe", "id"),
    ("transactions", "fence", "id"),
    ("spark-recover", "prefix"),
    ("demo",),
]


@pytest.mark.slow
@for_each("command", COMMANDS)
def test_wrong_variable_is_named_by_every_command(command: tuple[str, ...]) -> None:
    done = run(*command, environment={NAME: "localhost"})
    assert done.returncode == (1 if "pyspark" in done.stderr else 2)
    assert not done.stdout
    if "pyspark" not in done.stderr:  # it may not be installed
        assert done.stderr.startswith("Error: ConfigError: ")
        assert f"{NAME} = 'localhost': 'localhost' has no port" in done.stderr


@pytest.mark.slow
def test_variable_names_the_servers_unless_the_option_does(tmp_path: Path) -> None:
    with ThreadedCluster(topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        file = tmp_path / "client.properties"
        file.write_text("bootstrap.servers=127.0.0.1:1\n")
        assert run("topics", "orders", environment={NAME: servers}).returncode == 0
        option = run("topics", "orders", "-b", servers, environment={NAME: "127.0.0.1:1"})
        assert option.returncode == 0
        over_file = run("topics", "--config", str(file), environment={NAME: servers})
        assert over_file.returncode == 0
        empty = run("topics", "--config", str(file), environment={NAME: ""})
    assert "connection refused by 127.0.0.1:1" in empty.stderr
    assert NAME not in empty.stderr


@pytest.mark.slow
def test_unreachable_servers_are_traced_to_the_variable() -> None:
    done = run("topics", environment={NAME: "127.0.0.1:1"})
    assert done.returncode == 1
    assert done.stderr.endswith(f"\nThe servers come from {NAME}.\n")
    assert NAME not in run("topics", "-b", "127.0.0.1:1", environment={NAME: "b:1"}).stderr


@pytest.mark.slow
def test_missing_servers_name_each_place_for_them() -> None:
    done = run("topics", environment={NAME: ""})
    assert done.returncode == 2
    assert done.stderr.endswith(
        f"Error: Missing option '-b' / '--bootstrap-servers', {NAME} in the environment,"
        " or bootstrap.servers in --config.\n"
    )


@pytest.mark.slow
@for_each(
    ("options", "environment", "told"),
    [
        (("-b", "a b"), {}, "--bootstrap-servers = 'a b': "),
        (
            ("-b", "a:1", "--security-protocol", "SASL_SSL", "--sasl-mechanism", "PLAIN"),
            {"AIOPRODUCER_SASL_JAAS_CONFIG": "odd"},
            "AIOPRODUCER_SASL_JAAS_CONFIG = ***: ",
        ),
        (("-b", "a:1", "--security-protocol", "TLS"), {}, "--security-protocol = 'TLS': "),
        (
            ("-b", "a:1", "-o", "security.protocol=TLS"),
            {},
            "security.protocol = 'TLS': ",
        ),
    ],
)
def test_wrong_value_is_named_by_its_source(
    options: tuple[str, ...], environment: dict[str, str], told: str
) -> None:
    done = run("topics", *options, environment=environment)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: ConfigError: {told}")


@pytest.mark.slow
def test_malformed_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.properties").write_text("acks=\\u12\n")
    for command in (("topics", "--config"), ("config",)):
        done = run(*command, "odd.properties", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("Error: ConfigError: odd.properties: \\u needs four")
