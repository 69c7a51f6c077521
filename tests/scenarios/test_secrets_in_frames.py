"""No frame of an authentication or configuration error has a secret as a local variable."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from aioproducer import AuthenticationFailed, ConfigError, Producer, ProducerConfig, TransactionAdmin
from aioproducer._core.address import Address
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.contrib.threads import ThreadedProducer
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.frames import frames_with
from tests.http_serving import serving

SECRET = "planted-S3cret"
FILE = "planted.key"


def raising() -> tuple[str, str]:
    password = SECRET
    raise OSError(f"no vault for {len(password)} characters")


async def raising_later() -> str:
    token = SECRET
    raise OSError(f"no vault for {len(token)} characters")


class Wrong:
    """A mechanism whose messages are no bytes."""

    name = "X-WRONG"

    def start(self, broker: Address) -> bytes:
        return SECRET  # type: ignore[return-value]

    def respond(self, challenge: bytes) -> bytes:
        return b""


PLAIN = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": SECRET}
TOKEN = {"sasl_mechanism": "OAUTHBEARER"}
LOGINS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "plain with NUL": {**PLAIN, "sasl_password": f"{SECRET}\0"},
    "plain with surrogate": {**PLAIN, "sasl_password": f"{SECRET}\ud800"},
    "scram": {**PLAIN, "sasl_mechanism": "SCRAM-SHA-256"},
    "scram with surrogate": {**PLAIN, "sasl_mechanism": "SCRAM-SHA-512", "sasl_password": f"{SECRET}\ud800"},
    "callable": {"sasl_mechanism": "PLAIN", "sasl_credentials": raising},
    "callable returns one text": {"sasl_mechanism": "PLAIN", "sasl_credentials": lambda: SECRET},
    "refused pair": {"sasl_mechanism": "PLAIN", "sasl_credentials": lambda: ("alice", SECRET)},
    "token": {**TOKEN, "sasl_oauth_token_provider": lambda: SECRET},
    "token with blank": {**TOKEN, "sasl_oauth_token_provider": lambda: f"{SECRET} "},
    "token bytes": {**TOKEN, "sasl_oauth_token_provider": SECRET.encode},
    "provider raises": {**TOKEN, "sasl_oauth_token_provider": raising_later},
    "mechanism of the user": {"sasl_mechanism": Wrong},
}


@for_each("login", LOGINS.values())
async def test_refused_login_has_no_secret_in_frames(login: dict[str, Any]) -> None:
    users = {"alice": "right"}
    mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    async with Cluster(
        security_protocol="SASL_PLAINTEXT", sasl_mechanisms=mechanisms, users=users, tokens={"right": "alice"}
    ) as cluster:
        producer = Producer(cluster.bootstrap_servers, security_protocol="SASL_PLAINTEXT", **login)
        with pytest.raises(AuthenticationFailed) as raised:
            await producer.start()
        await producer.close()
    assert SECRET not in f"{raised.value!r} {raised.value} {raised.value.__cause__!r}"
    assert frames_with(SECRET, raised.value) == []


class Refusing(BaseHTTPRequestHandler):
    """A token endpoint that echoes the request in its reason phrase and body."""

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"]))
        said = f"{self.headers.get('Authorization', '')} {form.decode()} {SECRET}"
        self.send_response(400, f"no \x1b[31m{said}" + "x" * 500)
        self.end_headers()
        self.wfile.write(json.dumps({"error": "invalid_client", "error_description": said}).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base class
        return


async def test_refused_token_request_has_no_secret() -> None:
    with serving(Refusing) as port:
        async with Cluster(
            security_protocol="SASL_PLAINTEXT", sasl_mechanisms=["OAUTHBEARER"], tokens={"right": "alice"}
        ) as cluster:
            producer = Producer(
                cluster.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauthbearer_token_endpoint_url=f"http://127.0.0.1:{port}/?key={SECRET}",
                sasl_oauthbearer_client_credentials_client_id="me",
                sasl_oauthbearer_client_credentials_client_secret=SECRET,
            )
            assert SECRET not in repr(producer.config)
            with pytest.raises(AuthenticationFailed, match="it answers 400") as raised:
                await producer.start()
            await producer.close()
    text = str(raised.value)
    assert SECRET not in text
    assert "bWU6" not in text  # base64 of the client's id
    assert text.isprintable()
    assert len(text) < 1000
    assert frames_with(SECRET, raised.value) == []


BAD: dict[str, Any] = {"security_protocol": "SASL_SSL", **PLAIN, "linger_ms": -1}


def bad_options(tmp_path: Path) -> list[Any]:
    key = tmp_path / FILE
    key.write_text(f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n")
    named = {"bootstrap.servers": "a:1"} | {name.replace("_", "."): value for name, value in BAD.items()}
    jaas = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{SECRET}"'
    )
    return [
        lambda: Producer("a:1", **BAD),
        lambda: TransactionAdmin("a:1", **BAD),
        lambda: ThreadedProducer("a:1", **BAD),
        lambda: ProducerConfig(bootstrap_servers="a:1", **BAD),
        lambda: ProducerConfig.from_mapping(named),
        lambda: ProducerConfig.from_properties("\n".join(f"{name}={value}" for name, value in named.items())),
        lambda: Producer("a:1", security_protocol="SASL_SSL", sasl_jaas_config=jaas),
        lambda: Producer("a:1", security_protocol="SSL", ssl_keystore_location=str(key)),
        lambda: Producer("a:1", security_protocol="SSL", ssl_keystore_key=key.read_text()),
        lambda: Producer(
            "a:1",
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=f"ftp://a/?k={SECRET}",
        ),
    ]


@for_each("number", range(10))
def test_configuration_error_has_no_secret_in_frames(number: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        bad_options(tmp_path)[number]()
    assert SECRET not in f"{raised.value!r}"
    assert frames_with(SECRET, raised.value) == []


async def test_aiokafka_error_has_no_secret_in_frames() -> None:
    with pytest.raises(ValueError, match="sasl_mechanism") as raised:
        AIOKafkaProducer(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="NONE",
            sasl_plain_username="alice",
            sasl_plain_password=SECRET,
        )
    assert frames_with(SECRET, raised.value) == []
