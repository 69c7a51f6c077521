"""The programs of the page about security run, each on a cluster set up as on the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from aioproducer.testing import ThreadedCluster

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/security.md").read_text()
TESTING = (ROOT / "docs/reference/testing.md").read_text()
PASSWORD = "wonderland"
ENDPOINT = "https://sso.example/realms/shop/protocol/openid-connect/token"

BY_PASSWORD = {"security_protocol": "SASL_SSL", "users": {"alice": PASSWORD}}
BY_TOKEN = {"security_protocol": "SASL_SSL", "tokens": {"t0ken": "orders"}}
MUTUAL = {"security_protocol": "SSL", "client_auth": True}
CLUSTERS: dict[str, dict[str, Any]] = {
    "Your own CA": {"security_protocol": "SSL"},
    "SCRAM, and MSK with SCRAM": BY_PASSWORD | {"sasl_mechanisms": ["SCRAM-SHA-512"]},
    "Confluent Cloud": BY_PASSWORD | {"sasl_mechanisms": ["PLAIN"]},
    "mTLS, and Strimzi": MUTUAL,
    "OAuth, with Keycloak and the like": BY_TOKEN,
    "A JVM client's file": BY_PASSWORD,
    "Rotation": BY_PASSWORD,
}
"""By the heading that a program is under."""


def programs() -> list[Any]:
    samples = []
    for section in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0]
        for number, program in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL)):
            samples.append(pytest.param(heading, program, id=f"{heading}-{number}"))
    return samples


@contextmanager
def token_endpoint() -> Iterator[str]:
    """Run an OAuth server that issues a token for the right secret."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            known = self.headers["Authorization"] == "Basic b3JkZXJzOndvbmRlcmxhbmQ="  # orders:wonderland
            answer = {"access_token": "t0ken", "expires_in": 300} if known else {"error": "invalid_client"}
            body = json.dumps(answer).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()
            thread.join()


def write_files(cluster: ThreadedCluster, folder: Path) -> None:
    """Write the input files of the programs, as Strimzi, a vault or an administrator of a JVM would."""
    for name in ("cluster-ca", "user", "secrets"):
        (folder / name).mkdir()
    for name in ("ca.pem", "cluster-ca/ca.crt"):
        (folder / name).write_text(cluster.ca_pem)
    (folder / "secrets/password").write_text(f"{PASSWORD}\n")
    options = cluster.client_options
    (folder / "user/user.crt").write_text(options.get("ssl_keystore_certificate_chain", ""))
    (folder / "user/user.key").write_text(options.get("ssl_keystore_key", ""))
    (folder / "client.properties").write_text(
        f"bootstrap.servers={cluster.bootstrap_servers}\n"
        "security.protocol=SASL_SSL\nssl.truststore.location=ca.pem\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="alice" password="{PASSWORD}";\n'
    )


def run(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONASYNCIODEBUG": "", **environment},
    )


@pytest.mark.parametrize(("heading", "program"), programs()[1:])
def test_programs_of_the_security_page_send_a_record(heading: str, program: str, tmp_path: Path) -> None:
    with ThreadedCluster(topics={"orders": 1}, **CLUSTERS[heading]) as cluster, token_endpoint() as endpoint:
        write_files(cluster, tmp_path)
        environment = dict.fromkeys(("KAFKA_PASSWORD", "API_SECRET", "CLIENT_SECRET"), PASSWORD)
        environment |= {"API_KEY": "alice"}
        if heading == "Confluent Cloud":
            environment["SSL_CERT_FILE"] = str(tmp_path / "ca.pem")  # the trust store of the system
        program = re.sub(r"broker\.example:\d+", cluster.bootstrap_servers, program)
        done = run(program.replace(ENDPOINT, endpoint), tmp_path, **environment)
        # The endpoint of this test speaks http, of which the producer warns.
        lines = [line for line in done.stderr.splitlines() if "token_endpoint_url=http:" not in line]
        assert (done.returncode, lines) == (0, [])
        assert [record.value for record in cluster.records("orders", 0)] == [b"value"]


def test_first_program_prints_the_output_on_the_page(tmp_path: Path) -> None:
    program, promised = re.findall(r"```(?:python|text)\n(.*?)```", PAGE, re.DOTALL)[:2]
    assert run(program, tmp_path).stdout == promised


def test_settings_of_the_table_have_sections() -> None:
    sections = set(re.findall(r"^### (.*)$", PAGE, re.MULTILINE))
    assert CLUSTERS.keys() - {"Rotation"} <= sections


def test_messages_on_the_page_are_those_of_the_code() -> None:
    packages = ("security", "net", "protocol")
    sources = [source for name in packages for source in (ROOT / "aioproducer/_core" / name).glob("*.py")]
    said = re.sub(r'"\s+f?"', "", "".join(source.read_text() for source in sources))
    table = PAGE.split("| the message has |")[1]
    phrases = [
        phrase
        for row in table.splitlines()[2:]
        if row.startswith("|")
        for phrase in re.findall(r"`([a-zA-Z ]+ [a-zA-Z …]+)`", row.split("|")[1])
    ]
    assert len(phrases) == 11
    for phrase in phrases:
        words = re.escape(phrase).replace("…", r"\{[^}]*\}")
        assert re.search(words, said), phrase


def test_login_sample_of_the_testing_page_runs(tmp_path: Path) -> None:
    section = TESTING.split("## TLS and logins")[1].split("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    done = run(f"import asyncio\n{program}\nasyncio.run(test_wrong_password_is_refused())", tmp_path)
    assert done.returncode == 0, done.stderr
