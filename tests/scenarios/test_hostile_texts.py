"""Control and bidirectional characters of brokers, topics, files and token servers are escaped wherever they are shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aioproducer import AuthenticationFailed, Producer, ProducerError, TopicAuthorizationFailed, _topic_client
from aioproducer._core.address import Address, ResolvedAddress
from aioproducer._core.backoff import Backoff
from aioproducer._core.protocol.metadata import MetadataResponse
from aioproducer._core.security.exchange import Exchange
from aioproducer._core.security.oauthbearer import OAuthBearer, SharedTokens, Token
from aioproducer._core.security.secret import Secret
from aioproducer.cli import commands
from aioproducer.testing import Cluster, ThreadedCluster, in_virtual_time
from tests.http_serving import serving
from tests.unit._core.test_logfmt_escaping import BIDI, C0, C1

SCRIPTED = b"injected by cluster.on()"
ALL = [*C0, *C1, *BIDI]


def chunks(size: int) -> Iterator[str]:
    """Yield all hostile characters in texts of exactly *size* bytes."""
    text = ""
    for character in ALL:
        if len((text + character).encode()) > size:
            yield text + "x" * (size - len(text.encode()))
            text = ""
        text += character
    yield text + "x" * (size - len(text.encode()))


def assert_clean(*texts: str) -> None:
    for text in texts:
        assert text.isprintable(), ascii(text)


def scripted_text_becomes(hostile: bytes, frame: bytes) -> bytes:
    return frame.replace(SCRIPTED, hostile)


def lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


@in_virtual_time
async def test_error_message_of_a_produce_response(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "aioproducer")
    async with (
        Cluster(topics={"t": 1}, transport="memory", latency_s=0.001) as cluster,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        for hostile in chunks(len(SCRIPTED)):
            rule = cluster.on("produce").answer(TopicAuthorizationFailed)
            rule.rewrite(partial(scripted_text_becomes, hostile.encode()))
            with pytest.raises(ProducerError) as raised:
                await producer.send("t", b"x")
            assert "\\u" in str(raised.value)
            assert_clean(str(raised.value), str(raised.value.__cause__))
    assert_clean(*caplog.messages)


@pytest.mark.parametrize("hostile", ["".join(ALL), "x" * 40_000])
async def test_refusals_of_a_login(hostile: str) -> None:
    async def fetch() -> Token:
        return Token(Secret("abc"))

    mechanism = OAuthBearer(SharedTokens(fetch, backoff=Backoff(1.0, 1.0)))
    exchange = Exchange(mechanism, Address(f"host{hostile[:300]}", 1))
    await exchange.start()
    await exchange.answer(json.dumps({"status": hostile}).encode())
    for error in (
        exchange.refused(58, hostile),
        exchange.refused(33, None, [hostile]),
        exchange.refused(34, hostile),
    ):
        assert_clean(str(error), str(error.__cause__))
        assert len(str(error)) < 16_000


def test_host_names_of_addresses() -> None:
    hostile = "".join(ALL)
    assert_clean(str(Address(hostile, 9092)), str(ResolvedAddress("127.0.0.1", 9092, hostile)))


class Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        hostile = "".join(ALL)
        self.send_response(400, "".join(each for each in ALL if each not in "\r\n" and ord(each) < 256))
        self.end_headers()
        self.wfile.write(json.dumps({"error": hostile, "error_description": hostile}).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base class
        return


async def test_texts_of_a_token_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Refusing) as port:
        async with Cluster(
            security_protocol="SASL_PLAINTEXT", sasl_mechanisms=["OAUTHBEARER"], tokens={"right": "alice"}
        ) as cluster:
            producer = Producer(
                cluster.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauthbearer_token_endpoint_url=f"http://127.0.0.1:{port}/",
                sasl_oauthbearer_client_credentials_client_id="me",
                sasl_oauthbearer_client_credentials_client_secret="secret",
            )
            with pytest.raises(AuthenticationFailed, match="400") as raised:
                await producer.start()
            await producer.close()
    assert_clean(str(raised.value), *caplog.messages)


def command(*arguments: str | Path) -> list[str]:
    """Return the lines that a command prints."""
    done = CliRunner().invoke(commands.program, [*map(str, arguments)], prog_name="aioproducer")
    return lines(done.output)


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(topics={"orders": 1}) as running:
        yield running


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["people", "programs"])
def test_tail_shows_hostile_records_in_one_line(cluster: ThreadedCluster, options: list[str]) -> None:
    async def send() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            for character in ALL:
                data = f"a{character}b"
                await producer.send("orders", data.encode(), data.encode(), headers=[(data, data.encode())])

    asyncio.run(send())
    shown = command(
        "tail", "orders", "--bootstrap-servers", cluster.bootstrap_servers, "-n", "1000", *options
    )
    assert len(shown) == len(ALL)
    assert_clean(*shown)
    if options:
        assert [json.loads(line)["headers"][0][0] for line in shown] == [f"a{each}b" for each in ALL]


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["people", "programs"])
def test_topics_shows_hostile_names_of_brokers(
    monkeypatch: pytest.MonkeyPatch, cluster: ThreadedCluster, options: list[str]
) -> None:
    describe = _topic_client.Client.describe
    hostile = "".join(ALL)

    async def described(self: Any, topics: Any) -> MetadataResponse:
        metadata = await describe(self, topics)
        metadata.brokers[0].host = metadata.brokers[0].rack = metadata.topics[0].name = hostile
        metadata.cluster_id = hostile
        return metadata

    monkeypatch.setattr(_topic_client.Client, "describe", described)
    shown = command("topics", "--bootstrap-servers", cluster.bootstrap_servers, *options)
    assert any("\\u001b" in line for line in shown)
    assert_clean(*shown)


def test_transactions_shows_hostile_ids(monkeypatch: pytest.MonkeyPatch, cluster: ThreadedCluster) -> None:
    hostile = "".join(ALL)

    async def use() -> None:
        async with (
            Producer(cluster.bootstrap_servers, transactional_id=hostile) as producer,
            producer.transaction(),
        ):
            await producer.send("orders", b"x")

    asyncio.run(use())
    for arguments in (["list"], ["list", "--json"], ["describe", hostile]):
        shown = command("transactions", *arguments, "--bootstrap-servers", cluster.bootstrap_servers)
        assert any("\\u001b" in line for line in shown)
        assert_clean(*shown)


def test_send_names_hostile_files(tmp_path: Path, cluster: ThreadedCluster) -> None:
    file = tmp_path / "a\x1b[2J\nCRITICAL forged\u202e.jsonl"
    file.write_text("no JSON\n")
    shown = command(
        "send", "orders", file, "--format", "json", "--bootstrap-servers", cluster.bootstrap_servers
    )
    assert any("\\u001b[2J\\nCRITICAL" in line for line in shown)
    assert_clean(*shown)
    assert_clean(*command("config", tmp_path / "missing\x1b[2J\u202e"))
