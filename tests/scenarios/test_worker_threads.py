"""Blocking work: apart from the application's threads, and without any thread."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pytest
import uvloop

from aioproducer import AuthenticationFailed, ConnectionFailed, Producer
from aioproducer._core import telemetry_session
from aioproducer._core.net import in_flight
from aioproducer._core.security import passwords as passwords_module
from aioproducer._core.worker_threads import WorkerThreads
from aioproducer.arrow import send_table
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.login_rig import USERS

TOPIC = "orders"
SOON_S = 5.0
Use: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


def by_name(cluster: Cluster) -> str:
    return cluster.bootstrap_servers.replace("127.0.0.1", "localhost")


async def send(cluster: Cluster, **options: Any) -> None:
    async with Producer(by_name(cluster), **{**cluster.client_options, **options}) as producer:
        values = [os.urandom(1000) for _ in range(200)]
        await asyncio.gather(*(producer.send(TOPIC, value) for value in values))


async def compression() -> None:
    async with Cluster(topics={TOPIC: 1}) as cluster:
        for codec in ("gzip", "lz4", "zstd"):
            await send(cluster, compression_type=codec, linger_ms=20)


async def metadata() -> None:
    async with Cluster(topics={TOPIC: 3}) as cluster:
        await send(cluster)


async def telemetry() -> None:
    async with Cluster(topics={TOPIC: 1}) as cluster:
        cluster.subscribe_metrics("*")
        async with asyncio.timeout(10):
            while not cluster.pushed_metrics():  # the subscription may arrive after the last record
                await send(cluster)


async def transactions() -> None:
    async with (
        Cluster(topics={TOPIC: 1}) as cluster,
        Producer(by_name(cluster), transactional_id="t", compression_type="zstd") as producer,
        producer.transaction(),
    ):
        await producer.send_many(TOPIC, [os.urandom(1000)] * 200)


async def arrow() -> None:
    async with Cluster(topics={TOPIC: 1}) as cluster, Producer(by_name(cluster)) as producer:
        batch = pa.RecordBatch.from_pydict({"v": ["a", "b"]})
        reader = pa.RecordBatchReader.from_batches(batch.schema, iter([batch, batch]))
        await send_table(producer, TOPIC, reader, value="v")
        assert len(cluster.records(TOPIC, 0)) == 4


async def passwords() -> None:
    async with Cluster(
        topics={TOPIC: 1}, security_protocol="SASL_SSL", sasl_mechanisms=["SCRAM-SHA-512"], users=USERS
    ) as cluster:
        await send(cluster)


async def certificates() -> None:
    async with Cluster(topics={TOPIC: 1}, security_protocol="SSL") as cluster:
        cluster.renew_certificates(hosts=["other.example"])
        with pytest.raises(AuthenticationFailed, match=r"other\.example"):
            await send(cluster)


async def callables() -> None:
    """The threads of the application."""
    async with Cluster(
        topics={TOPIC: 1}, security_protocol="SASL_SSL", sasl_mechanisms=["PLAIN"], users=USERS
    ) as cluster:
        options: dict[str, Any] = {**cluster.client_options, "sasl_credentials": lambda: ("alice", "hunter2")}
        for name in ("sasl_username", "sasl_password"):
            del options[name]
        async with Producer(by_name(cluster), **options) as producer:
            await producer.send(TOPIC, b"v")


async def tokens() -> None:
    async with Cluster(
        topics={TOPIC: 1}, security_protocol="SASL_PLAINTEXT", tokens={"token": "alice"}
    ) as cluster:
        await send(cluster, sasl_oauth_token_provider=lambda: "token")


WORK = [compression, metadata, telemetry, transactions, passwords, certificates]
USES: list[Use] = [*WORK, arrow, callables, tokens]


@pytest.fixture(autouse=True)
def everything_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run work of any size in a thread."""
    monkeypatch.setattr(in_flight, "DECODE_OFF_LOOP_BYTES", 0)
    monkeypatch.setattr(telemetry_session, "OFF_LOOP_TOPICS", 0)
    monkeypatch.setattr(passwords_module, "IN_A_THREAD_FROM", 0)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the threads of earlier tests take no calls."""
    ours = [each for name, each in sys.modules.items() if name.startswith("aioproducer.")]
    for name in ("CALL_THREADS", "LOOKUP_THREADS", "WORK_THREADS"):
        threads = WorkerThreads(2, f"aioproducer {name}")
        for module in ours:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, threads)


class AsyncioLoop(asyncio.SelectorEventLoop):
    """Has no default executor."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        assert executor is not None, f"{func} went to the default executor"
        return super().run_in_executor(executor, func, *args)


class UvLoop(uvloop.Loop):
    """Has no default executor."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        assert executor is not None, f"{func} went to the default executor"
        return super().run_in_executor(executor, func, *args)


@for_each("new_loop", [AsyncioLoop, UvLoop])
@for_each("use", USES)
def test_default_executor_is_not_used(use: Use, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(use())


def refuse(_: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("use", WORK)
def test_work_is_done_without_threads(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse)
    asyncio.run(use())


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("use", [callables, tokens])
def test_login_without_a_thread_fails_as_a_connection(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ConnectionFailed, match="no thread that CALL_THREADS"):
            asyncio.run(use())
    asyncio.run(use())


@pytest.mark.usefixtures("fresh")
def test_application_that_keeps_its_executor_busy_delays_nothing() -> None:
    done = threading.Event()

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
        own = [asyncio.create_task(asyncio.to_thread(done.wait, 60)) for _ in range(48)]
        try:
            async with asyncio.timeout(30):
                for use in USES:
                    await use()
        finally:
            done.set()
        await asyncio.gather(*own)

    asyncio.run(main())


class NameServer:
    """Resolver that answers once it is released."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = threading.Event()
        self._real = socket.getaddrinfo

    def __call__(self, host: Any, *args: Any, **options: Any) -> Any:
        if not options.get("flags"):
            self.asked += 1
            assert self.answers.wait(60)
        return self._real(host, *args, **options)


@pytest.mark.usefixtures("fresh")
def test_close_waits_for_no_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    names = NameServer()

    async def main() -> None:
        async with Cluster(brokers=4, topics={TOPIC: 4}) as cluster:
            cluster.on("metadata", times=None).rewrite(
                lambda frame: frame.replace(b"127.0.0.1", b"localhost")
            )
            async with Producer(by_name(cluster)) as producer:
                await asyncio.gather(*(producer.send(TOPIC, b"v", partition=each) for each in range(4)))
                monkeypatch.setattr(socket, "getaddrinfo", names)
                for node in range(1, 5):
                    cluster.disconnect(node)
                calls = [
                    asyncio.ensure_future(producer.send(TOPIC, b"v", partition=each)) for each in range(4)
                ]
                await asyncio.sleep(0.3)
                assert 1 <= names.asked <= 2  # as many as there are threads here
                assert await producer.close(0) == 4
            await asyncio.gather(*calls, return_exceptions=True)

    began_at = time.monotonic()
    try:
        asyncio.run(main())
        assert time.monotonic() - began_at < SOON_S
    finally:
        names.answers.set()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("what", ["sasl_credentials", "ssl_context", "sasl_oauth_token_provider"])
def test_start_that_is_given_up_waits_for_no_callable(what: str) -> None:
    returns, called = threading.Event(), threading.Event()

    def blocking() -> str:
        called.set()
        assert returns.wait(60)
        return "token"

    async def main() -> None:
        protocol: Literal["SSL", "SASL_PLAINTEXT"] = "SSL" if what == "ssl_context" else "SASL_PLAINTEXT"
        who: dict[str, Any] = {} if protocol == "SSL" else {"users": USERS, "tokens": {"token": "alice"}}
        async with Cluster(security_protocol=protocol, **who) as cluster:
            options: dict[str, Any] = {"security_protocol": protocol, what: blocking}
            if protocol != "SSL":
                options["sasl_mechanism"] = "PLAIN" if what == "sasl_credentials" else "OAUTHBEARER"
            producer = Producer(by_name(cluster), **options)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await producer.start()
            assert called.is_set()

    began_at = time.monotonic()
    try:
        asyncio.run(main())
        assert time.monotonic() - began_at < SOON_S
    finally:
        returns.set()


def test_interpreter_exit_waits_for_no_lookup() -> None:
    program = """
import asyncio, socket, time
real = socket.getaddrinfo
def lookup(host, *args, flags=0, **options):
    if not flags:
        time.sleep(600)
    return real(host, *args, flags=flags, **options)
socket.getaddrinfo = lookup
from aioproducer import ConnectionFailed, Producer
async def main():
    try:
        await Producer("kafka:9092", socket_connection_setup_timeout_ms=200).start()
    except ConnectionFailed as error:
        print("the name lookup did not finish in time" in str(error))
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=30)
    assert ended.stdout.split() == [b"True"]
