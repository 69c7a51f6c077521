"""Event loops other than plain asyncio: loops of GUIs, and the asyncio loop with greenlets."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from aioproducer import ConnectionFailed, Producer, WrongLoop
from aioproducer.testing import Cluster, ThreadedCluster

RECORDS = 500


class GuiLoop(asyncio.SelectorEventLoop):
    """Runs in an event loop of a GUI, as qasync's loop does: without `BaseEventLoop.run_forever`."""

    def run_forever(self) -> None:
        asyncio._set_running_loop(self)
        try:
            while not self._stopping:  # type: ignore[has-type]
                self._run_once()  # type: ignore[attr-defined]
        finally:
            self._stopping = False
            asyncio._set_running_loop(None)


@pytest.mark.parametrize("options", [{}, {"compression_type": "zstd", "linger_ms": 20}], ids=str)
def test_calls_work_on_a_gui_event_loop(options: dict[str, object]) -> None:
    async def main() -> None:
        async with (
            Cluster(topics={"orders": 1}) as cluster,
            Producer(cluster.bootstrap_servers, **options) as producer,  # type: ignore[arg-type]
        ):
            assert (await producer.send("orders", b"v", key=b"k")).offset == 0
            await asyncio.gather(*(producer.send("orders", os.urandom(500)) for _ in range(RECORDS)))
            await (await producer.enqueue("orders", b"v"))
            await producer.send_nowait("orders", b"v")
            assert (await producer.send_many("orders", [b"v"] * RECORDS)).delivered == RECORDS
            await producer.flush()
            with pytest.raises(WrongLoop):
                _ = await asyncio.to_thread(producer.send_nowait, "orders", b"v")
            assert len(cluster.records("orders", 0)) == 2 * RECORDS + 3

    with asyncio.Runner(loop_factory=GuiLoop) as runner:
        runner.run(main())


def test_loop_may_be_run_by_asyncio_first_and_in_steps_then() -> None:
    loop = asyncio.new_event_loop()

    def run_in_steps(future: asyncio.Future[object]) -> object:
        asyncio._set_running_loop(loop)
        try:
            while not future.done():
                loop._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio._set_running_loop(None)
        return future.result()

    async def begin() -> tuple[Cluster, Producer]:
        cluster = await Cluster(topics={"orders": 1}).__aenter__()
        producer = Producer(cluster.bootstrap_servers)
        await producer.start()
        await producer.send("orders", b"v")
        return cluster, producer

    async def go_on() -> int:
        return (await producer.send("orders", b"v")).offset

    cluster, producer = loop.run_until_complete(begin())
    assert run_in_steps(loop.create_task(go_on())) == 1
    assert loop.run_until_complete(go_on()) == 2
    loop.run_until_complete(producer.close())
    loop.run_until_complete(cluster.__aexit__(None, None, None))
    loop.close()


class LoopWithoutSockets(GuiLoop):
    """Has timers and callbacks only, as PySide's QtAsyncio."""

    async def sock_connect(self, sock: object, address: object) -> None:
        raise NotImplementedError


def test_loop_without_sockets_is_refused_by_start() -> None:
    async def main() -> None:
        with pytest.raises(ConnectionFailed, match="LoopWithoutSockets implements no sockets; use asyncio's"):
            await Producer("127.0.0.1:9092").start()

    with asyncio.Runner(loop_factory=LoopWithoutSockets) as runner:
        runner.run(main())


PROGRAM = f"""
import os, sys
def patch():
    if sys.argv[2] == "gevent":
        from gevent import monkey
        monkey.patch_all()
    else:
        import eventlet
        eventlet.monkey_patch()
if sys.argv[3] == "late":
    import aioproducer.contrib.threads
patch()
import threading
from aioproducer import WrongLoop
from aioproducer.contrib.threads import ThreadedProducer

producer = ThreadedProducer(sys.argv[1], compression_type="zstd", linger_ms=20)
producer.start()
offsets = []
threads = [
    threading.Thread(target=lambda: offsets.append(producer.send("orders", os.urandom(1000)).offset))
    for _ in range({RECORDS})
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(20)
assert sorted(offsets) == list(range({RECORDS})), offsets
try:
    ThreadedProducer(sys.argv[1]).start()
except WrongLoop as error:
    assert "gevent" in str(error)
else:
    raise AssertionError("asyncio runs two event loops in one thread")
for _ in range({RECORDS}):
    producer.enqueue("orders", os.urandom(1000))  # the end of the program delivers these
"""


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(topics={"orders": 1}) as opened:
        yield opened


@pytest.mark.parametrize("pure", ["0", "1"])
@pytest.mark.parametrize("imported", ["early", "late"])
@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_threaded_producer_serves_greenlets(
    cluster: ThreadedCluster, library: str, imported: str, pure: str
) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    servers = cluster.bootstrap_servers.replace("127.0.0.1", "localhost")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, servers, library, imported]
    environment = {**os.environ, "AIOPRODUCER_PURE": pure, "PYTHONASYNCIODEBUG": ""}
    ended = subprocess.run(command, check=False, capture_output=True, timeout=60, env=environment)
    assert ended.returncode == 0, ended.stderr.decode()
    assert len(cluster.records("orders", 0)) == 2 * RECORDS
