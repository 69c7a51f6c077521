"""Options for TLS and logins: every command takes them, and no secret is an argument."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from aioproducer.cli.commands import program
from aioproducer.cli.security_flags import FLAGS, SERVERS, secret_names, with_flag_names
from aioproducer.testing import ThreadedCluster
from tests.cases import for_each
from tests.unit._core.security.certificates import Authority

PASSWORD = "hunter2, and more"
SECURED = pytest.mark.kafka_cluster(
    security_protocol="SASL_SSL", users={"alice": PASSWORD}, topics={"orders": 1}
)


def call(*arguments: str | Path, **environment: str) -> Result:
    """Call a command; assert that its output has no password and no traceback."""
    variables: dict[str, str | None] = {f"AIOPRODUCER_{name}": value for name, value in environment.items()}
    done = CliRunner().invoke(program, [*map(str, arguments)], prog_name="aioproducer", env=variables)
    assert isinstance(done.exception, SystemExit | None)
    assert PASSWORD not in done.output
    return done


@pytest.fixture
def ca(kafka_cluster: ThreadedCluster, tmp_path: Path) -> Path:
    file = tmp_path / "ca.pem"
    file.write_text(kafka_cluster.ca_pem)
    return file


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    return file


@pytest.fixture
def properties(kafka_cluster: ThreadedCluster, ca: Path, tmp_path: Path) -> Path:
    """Configuration file of a JVM client for this cluster."""
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={kafka_cluster.bootstrap_servers}\n"
        f"security.protocol=SASL_SSL\nssl.truststore.location={ca}\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="alice" password="{PASSWORD}";\n'
    )
    return file


def by_scram(cluster: ThreadedCluster, ca: Path) -> tuple[str, ...]:
    return (
        *("--bootstrap-servers", cluster.bootstrap_servers, "--security-protocol", "sasl_ssl"),
        *("--ca", str(ca), "--sasl-mechanism", "SCRAM-SHA-512", "--username", "alice"),
    )


@SECURED
def test_every_command_takes_a_file_of_the_jvms(
    kafka_cluster: ThreadedCluster, properties: Path, tmp_path: Path
) -> None:
    orders = tmp_path / "orders"
    orders.write_text("one\ntwo\n")
    where = ("--config", properties)
    sent = call("send", "orders", orders, *where, "--run", "r")
    assert (sent.exit_code, sent.output[:22]) == (0, "2 records acknowledged"), sent.output
    assert call("topics", *where).exit_code == 0
    audited = call("audit", *where, "--topic", "orders", "--run", "r", "--expect", "2")
    assert (audited.exit_code, "each is in the topic once, in order" in audited.output) == (0, True)
    sped = call("perf", *where, "--topic", "orders", "--records", "10")
    assert sped.exit_code == 0, sped.output
    assert "and the options for security" in sped.output
    shown = call("demo", *where, "--records", "100")
    assert shown.exit_code == 0, shown.output
    checked = call("config", properties)
    assert (checked.exit_code, "sasl_jaas_config" in checked.output) == (0, True)


@SECURED
def test_password_comes_from_file_or_environment(
    kafka_cluster: ThreadedCluster, ca: Path, password: Path
) -> None:
    command = ("topics", *by_scram(kafka_cluster, ca))
    assert call(*command, "--password-file", password).exit_code == 0
    assert call(*command, SASL_PASSWORD=PASSWORD).exit_code == 0
    assert call(*command, "--password-file", password, SASL_PASSWORD="wrong").exit_code == 0
    missing = call(*command)
    assert missing.exit_code == 2
    assert "--sasl-mechanism = 'SCRAM-SHA-512' needs --username and sasl.password" in missing.output


@SECURED
def test_error_names_option_of_command_line(
    kafka_cluster: ThreadedCluster, properties: Path, ca: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_text(Authority("another").pem)
    by_option = call("topics", *by_scram(kafka_cluster, other), SASL_PASSWORD=PASSWORD)
    assert "--ca" in by_option.output
    properties.write_text(properties.read_text().replace(str(ca), str(other)))
    by_file = call("topics", "--config", properties)
    assert "ssl.truststore.location" in by_file.output
    for each in by_option, by_file:
        assert each.exit_code == 1
        assert "AuthenticationFailed" in each.output
        assert "ssl_" not in each.output


@SECURED
@pytest.mark.parametrize(
    "command", [("topics",), ("send", "orders"), ("audit", "--topic", "orders", "--run", "r"), ("demo",)]
)
def test_refused_authentication_is_one_line(
    kafka_cluster: ThreadedCluster, properties: Path, command: tuple[str, ...]
) -> None:
    kafka_cluster.users["alice"] = "another"
    refused = call(*command, "--config", properties)
    assert refused.exit_code == 1
    lines = [line for line in refused.output.splitlines() if "SaslAuthenticationFailed" in line]
    assert len(lines) == 1, refused.output
    assert f"{kafka_cluster.bootstrap_servers} refused the login by SCRAM-SHA-512" in lines[0]
    assert "check user name and password" in lines[0]


@pytest.mark.kafka_cluster(security_protocol="SSL", topics={"orders": 1}, client_auth=True)
def test_certificate_and_key_are_files(kafka_cluster: ThreadedCluster, ca: Path, tmp_path: Path) -> None:
    certificate, key, both = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "both.pem"
    options = kafka_cluster.client_options
    certificate.write_text(options["ssl_keystore_certificate_chain"])
    key.write_text(options["ssl_keystore_key"])
    both.write_text(certificate.read_text() + key.read_text())
    command = ("topics", "-b", kafka_cluster.bootstrap_servers, "--security-protocol", "SSL", "--ca", ca)
    assert call(*command, "--cert", certificate, "--key", key).exit_code == 0
    assert call(*command, "--cert", both).exit_code == 0
    assert (
        call(
            *command, "-o", f"ssl.keystore.key={key}", "-o", f"ssl.keystore.certificate.chain={certificate}"
        ).exit_code
        == 0
    )
    none = call(*command)
    assert none.exit_code == 1
    assert "Error: AuthenticationFailed: " in none.output
    assert len(none.output.splitlines()) == 1


@SECURED
def test_untrusted_broker_is_one_line(kafka_cluster: ThreadedCluster, password: Path) -> None:
    refused = call(
        *("topics", "-b", kafka_cluster.bootstrap_servers, "--security-protocol", "SASL_SSL"),
        *("--sasl-mechanism", "PLAIN", "--username", "alice", "--password-file", password),
    )
    assert (refused.exit_code, len(refused.output.splitlines())) == (1, 1)
    assert refused.output.startswith("Error: AuthenticationFailed: ")
    assert "ssl.truststore.location" in refused.output


@for_each("name", ["sasl.password", "sasl_jaas_config", "ssl.key.password", "ssl.keystore.key"])
def test_secret_in_argument_is_refused(name: str) -> None:
    done = call("topics", "-b", "a:1", "--option", f"{name}={PASSWORD}")
    assert done.exit_code == 2
    assert "other users of this machine can see" in done.output
    assert f"AIOPRODUCER_{name.replace('.', '_').upper()}" in done.output


def test_secret_names_are_hidden_options() -> None:
    assert {"sasl.password", "sasl.jaas.config", "ssl.key.password"} <= secret_names()
    assert not {"sasl.username", "ssl.truststore.location"} & secret_names()


def test_option_set_twice_is_refused() -> None:
    done = call("topics", "-b", "a:1", "--username", "alice", "-o", "sasl.username=bob")
    assert (done.exit_code, "an option of its own already sets sasl.username" in done.output) == (2, True)


def test_binary_password_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"\xff\xfe")
    done = call("topics", "-b", "a:1", "--password-file", tmp_path / "password")
    assert (done.exit_code, "it is not UTF-8" in done.output) == (2, True)


def test_environment_is_ignored_with_plaintext(caplog: pytest.LogCaptureFixture) -> None:
    done = call("topics", "-b", "127.0.0.1:1", SASL_PASSWORD=PASSWORD)
    assert done.output.startswith("Error: ConnectionFailed: ")
    assert not caplog.messages


def test_command_has_no_argument_for_a_secret() -> None:
    hidden = {name.replace(".", "-") for name in secret_names()} | {"password"}
    for command in program.commands.values():
        names = {
            opt.lstrip("-") for each in command.params if isinstance(each, click.Option) for opt in each.opts
        }
        assert not names & hidden


TOKEN = pytest.mark.kafka_cluster(security_protocol="SASL_PLAINTEXT", tokens={"planted": "alice"})


@TOKEN
def test_file_endpoint_needs_a_flag_or_the_environment(
    kafka_cluster: ThreadedCluster, tmp_path: Path
) -> None:
    token, properties = tmp_path / "token", tmp_path / "client.properties"
    token.write_text("planted")
    endpoint = f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}"
    lines = (
        f"bootstrap.servers={kafka_cluster.bootstrap_servers}",
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=OAUTHBEARER",
    )
    properties.write_text("\n".join((*lines, endpoint)))
    variable, flag = "SASL_OAUTHBEARER_ALLOWED_FILES", "--sasl-oauthbearer-allowed-files"
    for command in ("topics", "--config", properties), ("config", properties):
        refused = call(*command)
        assert refused.exit_code != 0
        assert "refused" in refused.output
        assert f"AIOPRODUCER_{variable}" in refused.output
        assert call(*command, **{variable: str(token)}).exit_code == 0
        assert call(*command, flag, token).exit_code == 0
        assert call(*command, flag, "/elsewhere", **{variable: str(token)}).exit_code != 0
        assert call(*command).exit_code != 0, "the flag of one command is none of the next"
    properties.write_text("\n".join(lines))
    assert "refused" in call("topics", "--config", properties, "-o", endpoint).output
    itself = call("topics", "--config", properties, "-o", f"sasl.oauthbearer.allowed.files={token}")
    assert "cannot allow itself" in itself.output
    limited = call(
        "topics",
        "--config",
        properties,
        "-o",
        endpoint.replace("file:", "https://a"),
        "--sasl-oauthbearer-allowed-urls",
        "https://b",
    )
    assert "refused" in limited.output


@SECURED
@pytest.mark.parametrize("in_section", [False, True])
def test_file_of_another_program_is_taken(
    kafka_cluster: ThreadedCluster, ca: Path, tmp_path: Path, in_section: bool
) -> None:
    file = tmp_path / "client.ini"
    prefix = "" if in_section else "kafka."
    file.write_text(
        ("[default]\n" if in_section else "")
        + f"{prefix}bootstrap.servers={kafka_cluster.bootstrap_servers}\n"
        f"{prefix}security.protocol=SASL_SSL\n{prefix}ssl.ca.location={ca}\n{prefix}sasl.mechanisms=SCRAM-SHA-512\n"
        f"{prefix}sasl.username=alice\n{prefix}sasl.password=${{env:KAFKA_SECRET}}\n"
        f"{prefix}session.timeout.ms=45000\n{prefix}basic.auth.user.info=a:{PASSWORD}\n"
    )
    options = ("--config", file, "--config-providers", "env", "--config-prefix")
    done = call("topics", *options, "[default]" if in_section else "kafka.")
    assert done.exit_code == 2
    assert "sasl.password: contains a reference ${env:…} without a value" in done.output
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_SECRET", PASSWORD)
        done = call("topics", *options, "[default]" if in_section else "kafka.")
    assert done.exit_code == 0, done.output
    assert "orders" in done.output


@for_each(
    "name",
    ["sasl.plain.password", "ssl_key_pem", "sasl.oauthbearer.client.secret", "basic.auth.user.info",
     "schema.registry.ssl.key.password"],
)  # fmt: skip
def test_secret_of_another_client_is_no_argument(name: str) -> None:
    done = call("topics", "-b", "a:1", "-o", f"{name}={PASSWORD}")
    assert done.exit_code == 2
    assert "other users of this machine can see" in " ".join(done.output.split())


@for_each("prefix", ["[default]", "spring.kafka.", "my-", "x_"])
def test_option_behind_a_prefix_keeps_its_name_in_errors(prefix: str) -> None:
    context = click.Context(click.Command("c"))
    context.meta[FLAGS] = {SERVERS: "--bootstrap-servers"}
    assert with_flag_names(f"'{SERVERS}'", context) == "'--bootstrap-servers'"
    assert with_flag_names(f"'{prefix}{SERVERS}'", context) == f"'{prefix}{SERVERS}'"
