"""Ctrl-C in a program under `asyncio.run`, on real sockets: it ends at once, and has nothing to complain about.

The first one cancels the program, so that an `async with` ends as usual: what was appended is sent. The second one
cancels that, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

AT_MOST_S = 20.0
"""Far less than the delivery timeout, far more than an interpreter needs."""

PROGRAM = """
    import asyncio, os, signal, time
    from aioproducer import Producer
    from aioproducer.testing import Cluster

    async def send(producer):
        while True:
            await producer.send("orders", b"v")

    async def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    async def main():
        async with Cluster(brokers=2, topics={{"orders": 2}}) as cluster:
            {body}

    {run}(main())
"""

BODIES = {
    "while records are sent": """
            async with Producer(cluster.bootstrap_servers) as producer, asyncio.TaskGroup() as group:
                for _ in range(10):
                    group.create_task(send(producer))
                await producer.send("orders", b"v")
                group.create_task(interrupt())
    """,
    "while it starts": """
            for node_id in (1, 2):
                cluster.freeze_broker(node_id)
            asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)
            async with Producer(cluster.bootstrap_servers) as producer:
                raise AssertionError("it has started")
    """,
    "while it closes and no broker answers": """
            async with Producer(cluster.bootstrap_servers) as producer:
                await producer.send("orders", b"v")
                for node_id in (1, 2):
                    cluster.freeze_broker(node_id)
                futures = [producer.send_nowait("orders", b"v") for _ in range(10)]
                asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)
    """,
    "twice: the second time cuts short the waiting for brokers that are away": """
            async with Producer(cluster.bootstrap_servers, buffer_memory=5_000) as producer:
                await producer.send("orders", b"v")
                for node_id in (1, 2):
                    await cluster.stop_broker(node_id)
                for delay_s in (0.1, 0.5):
                    asyncio.get_running_loop().call_later(delay_s, os.kill, os.getpid(), signal.SIGINT)
                await asyncio.gather(*(producer.send("orders", b"v" * 1_000) for _ in range(50)))
    """,
    "twice, while tasks send that nobody awaits": """
            async with Producer(cluster.bootstrap_servers) as producer:
                await producer.send("orders", b"v")
                for node_id in (1, 2):
                    cluster.freeze_broker(node_id)
                tasks = [asyncio.create_task(producer.send("orders", b"v")) for _ in range(3)]
                for delay_s in (0.1, 0.4):
                    asyncio.get_running_loop().call_later(delay_s, os.kill, os.getpid(), signal.SIGINT)
                await asyncio.sleep(10)
    """,
}
COMPRESSES = """
            async with Producer(cluster.bootstrap_servers, compression_type="zstd") as producer:
                await producer.send_many("orders", [os.urandom(1_000) for _ in range(1_000)])
                asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
                await asyncio.sleep(10)
    """
NOBODY_CLOSES = """
            producer = Producer(cluster.bootstrap_servers)
            await producer.start()
            await producer.send("orders", b"v")
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
            await send(producer)
    """
COMPLAINTS = ("never awaited", "never retrieved", "was destroyed", "Exception ignored")


def interrupted(body: str, run: str = "asyncio.run") -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(PROGRAM).format(
        body=textwrap.indent(textwrap.dedent(body).strip(), " " * 8).strip(), run=run
    )
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "always", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=AT_MOST_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_ctrl_c_ends_the_program_at_once(body: str) -> None:
    ended = interrupted(body)
    assert ended.stderr.strip().splitlines()[-1] == "KeyboardInterrupt"
    assert ended.returncode == -signal.SIGINT
    for complaint in ("Warning", *COMPLAINTS):
        assert complaint not in ended.stderr, ended.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_ctrl_c_warns_only_of_the_unclosed_producer() -> None:
    ended = interrupted(NOBODY_CLOSES)
    assert ended.stderr.count("Warning: ") == ended.stderr.count("ResourceWarning: unclosed producer") == 1
    assert ended.returncode == -signal.SIGINT
    for complaint in COMPLAINTS:
        assert complaint not in ended.stderr, ended.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_compression_threads_do_not_block_the_exit() -> None:
    ended = interrupted(COMPRESSES, run="asyncio.new_event_loop().run_until_complete")
    assert ended.returncode == -signal.SIGINT
