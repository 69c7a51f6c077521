from __future__ import annotations

import asyncio
import errno
import re

import click
import pytest

from aioproducer import Producer
from aioproducer.cli.broker_command import serve


async def first_output(capsys: pytest.CaptureFixture[str], serving: asyncio.Task[None]) -> str:
    """Wait until the broker says where it is; the sockets are open then."""
    output = ""
    while "bootstrap servers" not in output and not serving.done():
        await asyncio.sleep(0)
        output += capsys.readouterr().out
    return output


async def test_it_says_where_it_is_and_serves_until_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    serving = asyncio.create_task(serve(port=0, brokers=2, topics={"orders": 3}))
    servers = re.findall(r"127\.0\.0\.1:\d+", await first_output(capsys, serving))
    assert len(servers) == 2
    async with Producer(servers) as producer:
        assert await producer.partitions_for("orders") == {0, 1, 2}
        assert (await producer.send("orders", b"value", partition=2)).offset == 0
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


@pytest.mark.parametrize(("brokers", "ports"), [(1, "port {0}"), (2, "ports {0} to {1}")])
async def test_a_port_that_is_taken_is_said_so(brokers: int, ports: str) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    async with taken:
        with pytest.raises(
            click.ClickException, match=f"cannot listen on {ports.format(port, port + 1)}: .* another --port"
        ):
            await serve(port=port, brokers=brokers, topics={})


async def test_an_output_that_cannot_be_written_is_not_about_its_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def echo(_: str, *, err: bool = False) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(click, "echo", echo)
    with pytest.raises(OSError, match="No space left on device"):
        await serve(port=0, brokers=1, topics={})


@pytest.mark.parametrize(("topic", "partitions"), [("no spaces", 1), ("orders", 0)])
async def test_a_topic_that_cannot_be_is_said_so(topic: str, partitions: int) -> None:
    with pytest.raises(click.ClickException, match=r"no topic name|cannot have 0 partitions"):
        await serve(port=0, brokers=1, topics={topic: partitions})
