"""Secrets are planted by every option that takes one, and looked for in everything that people read."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest

from aioproducer import ConfigError, Producer, ProducerConfig, ProducerError
from aioproducer.cli.commands import program
from aioproducer.config.object_kinds import CallableKind, Jaas, PathKind, SecretKind
from aioproducer.config.options import KINDS
from aioproducer.contrib.prometheus import expose
from aioproducer.errors import AuthenticationFailed
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.unit._core.security.certificates import Authority

SECRET = "hUnter2-planted"
SECRETS = [name for name, kind in KINDS.items() if isinstance(kind, SecretKind)]
CALLABLES = [name for name, kind in KINDS.items() if isinstance(kind, CallableKind)]
PATHS = [name for name, kind in KINDS.items() if isinstance(kind, PathKind)]
JAAS = (
    f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{SECRET}";'
)
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"


def text_of(name: str) -> str:
    return JAAS if isinstance(KINDS[name], Jaas) else SECRET


def shown_by(error: BaseException) -> str:
    """Return the traceback of *error* and of its causes, without lines of code."""
    lines = traceback.TracebackException.from_exception(error, capture_locals=False)
    told: list[str] = []
    while lines is not None:
        told += lines.format_exception_only()
        lines = lines.__cause__ or lines.__context__  # type: ignore[assignment]
    return f"{''.join(told)} {error!r}"


class Log(logging.Handler):
    """Stores log records, as text and as objects."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(record)} {record.__dict__}")


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Log records from DEBUG on."""
    root, ours, handler = logging.getLogger(), logging.getLogger("aioproducer"), Log()
    levels = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    ours.setLevel(logging.DEBUG)
    yield handler.lines
    root.removeHandler(handler)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture
def shown(log: list[str]) -> Iterator[Callable[[object], None]]:
    """Collects shown texts; neither the texts nor the log may contain the secret."""
    seen: list[str] = []
    yield lambda what: seen.append(f"{what!r} {what}")
    assert seen
    for each in (*seen, *log):
        assert SECRET not in each


def test_list_of_secrets_is_complete() -> None:
    assert len(SECRETS) == 9
    assert len(CALLABLES) == 2
    assert len(PATHS) == 5


@pytest.mark.parametrize("name", SECRETS)
def test_config_hides_secrets(name: str, tmp_path: Path, shown: Callable[[object], None]) -> None:
    config = ProducerConfig(bootstrap_servers="a:1", **{name: text_of(name)})  # type: ignore[arg-type]
    shown(config)
    shown(getattr(config, name))
    assert getattr(config, name).reveal() == text_of(name), "it is there"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match=name) as caught:
            pickle.dumps(config, protocol)
        shown(shown_by(caught.value))
    file = tmp_path / "p"
    file.write_text(f"bootstrap.servers=a:1\n{name.replace('_', '.')}={text_of(name)}\n")
    for more in ([], ["--json"]):
        done = CliRunner().invoke(program, ["config", str(file), *more])
        assert (done.exit_code, name in done.output) == (0, True)
        shown(done.output)


@for_each("name", [*SECRETS, *CALLABLES])
@for_each("wrap", [str.encode, lambda text: [text], lambda text: (text,)])
def test_error_hides_a_secret_of_the_wrong_type(
    name: str, wrap: Callable[[str], object], shown: Callable[[object], None]
) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        ProducerConfig(bootstrap_servers="a:1", **{name: wrap(SECRET)})  # type: ignore[arg-type]
    shown(shown_by(caught.value))


@for_each(
    ("option", "value"),
    [
        *((name, SECRET) for name in CALLABLES),
        *((name, PEM) for name in PATHS),
        ("sasl_jaas_config", SECRET),
        ("sasl_jaas_config", JAAS.rstrip(";")),
        ("sasl_jaas_config", JAAS.replace("ScramLoginModule", "Nonsense")),
        ("sasl_oauthbearer_token_endpoint_url", f"https://alice:{SECRET}@sso.example/token"),
        ("ssl_keystore_key", PEM),
    ],
)
def test_error_hides_a_secret_in_the_wrong_option(
    option: str, value: str, tmp_path: Path, shown: Callable[[object], None]
) -> None:
    others = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "ssl.keystore.certificate.chain": Authority().issue("me").chain
        if option == "ssl_keystore_key"
        else "",
    }
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping(others | {option: value})
    shown(shown_by(caught.value))
    file = tmp_path / "p"
    escaped = {name: text.replace("\n", "\\n") for name, text in (others | {option: value}).items()}
    file.write_text("".join(f"{name}={text}\n" for name, text in escaped.items()))
    for command in (["config", str(file)], ["topics", "--config", str(file)]):
        done = CliRunner().invoke(program, command)
        assert done.exit_code == 2
        shown(done.output)


async def raises() -> tuple[str, str]:
    raise LookupError(f"the vault said {SECRET}")


LOGINS: dict[str, dict[str, Any]] = {
    "password": {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": SECRET},
    "scram": {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice", "sasl_password": SECRET},
    "jaas": {"sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": JAAS},
    "callable": {"sasl_mechanism": "PLAIN", "sasl_credentials": lambda: ("alice", SECRET)},
    "token": {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: SECRET},
}
FAILING: dict[str, dict[str, Any]] = LOGINS | {
    "endpoint": {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": "http://127.0.0.1:1/token",
        "sasl_oauthbearer_client_credentials_client_id": "alice",
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
        "sasl_login_retry_backoff_max_ms": 0,
    },
}


def encrypted_key() -> dict[str, Any]:
    me = Authority().issue("me")
    return {
        "ssl_keystore_certificate_chain": me.chain,
        "ssl_keystore_key": me.encrypted_key(SECRET),
        "ssl_key_password": SECRET,
    }


@pytest.mark.parametrize("login", LOGINS.values(), ids=LOGINS)
async def test_running_producer_shows_no_secret(
    login: dict[str, Any], shown: Callable[[object], None], log: list[str]
) -> None:
    async with Cluster(
        topics={"orders": 1},
        security_protocol="SASL_SSL",
        users={"alice": SECRET},
        tokens={SECRET: "alice"},
        session_lifetime_s=100,
    ) as cluster:
        shown(cluster)
        registry = CollectorRegistry()
        async with Producer(
            cluster.bootstrap_servers,
            security_protocol="SASL_SSL",
            ssl_truststore_certificates=cluster.ca_pem,
            **encrypted_key(),
            **login,
        ) as producer:
            expose(producer, registry)
            await producer.send("orders", b"v")
            for each in (producer, producer.config, producer.metrics(), generate_latest(registry).decode()):
                shown(each)
    assert any("aioproducer" in line for line in log)


@pytest.mark.parametrize("login", FAILING.values(), ids=FAILING)
async def test_refused_login_shows_no_secret(login: dict[str, Any], shown: Callable[[object], None]) -> None:
    async with Cluster(
        security_protocol="SASL_PLAINTEXT", users={"alice": "another"}, tokens={"another": "alice"}
    ) as cluster:
        producer = Producer(cluster.bootstrap_servers, security_protocol="SASL_PLAINTEXT", **login)
        with pytest.raises(ProducerError) as caught:
            await producer.start()
        shown(shown_by(caught.value))
        shown(producer.metrics())
        await producer.close()


async def test_message_of_a_user_callable_is_kept(log: list[str]) -> None:
    async with Cluster(security_protocol="SASL_PLAINTEXT", users={"alice": "x"}) as cluster:
        options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        producer = Producer(cluster.bootstrap_servers, **options, sasl_credentials=raises)  # type: ignore[arg-type]
        with pytest.raises(AuthenticationFailed, match="LookupError, which is the cause") as caught:
            await producer.start()
        await producer.close()
    assert SECRET not in "".join([str(caught.value), *log])
    assert isinstance(caught.value.__cause__, LookupError)
