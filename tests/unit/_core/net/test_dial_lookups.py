"""Name lookups: in daemon threads, one per name, and on the event loop if no thread can start."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aioproducer._core.address import Address
from aioproducer._core.net import dial as dial_module
from aioproducer._core.net.dial import endpoints
from aioproducer._core.worker_threads import WorkerThreads

TIMEOUT_S = 10.0
real = socket.getaddrinfo


class NameServer:
    """Answers after it was released, and notes the lookups and their threads."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, threading.Thread]] = []
        self.begun = threading.Semaphore(0)
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if options.get("flags"):
            return real(host, port, *args, **options)
        self.asked.append((host, threading.current_thread()))
        self.begun.release()
        assert self.answers.wait(TIMEOUT_S)
        if host == "unknown":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", port)) for last in (1, 2)]

    async def lookups(self, count: int) -> None:
        """Wait until *count* lookups have begun."""
        while len(self.asked) < count:
            assert await asyncio.to_thread(self.begun.acquire, timeout=TIMEOUT_S)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server)
    yield server
    server.answers.set()


async def found(host: str, port: int = 9092) -> list[str]:
    return [each.host for each in await endpoints(Address(host, port))]


async def test_name_is_looked_up_in_a_daemon_thread(names: NameServer) -> None:
    assert await found("kafka") == ["127.0.0.1", "127.0.0.2"]
    [(host, thread)] = names.asked
    assert host == "kafka"
    assert thread.daemon
    assert thread.name.startswith("aioproducer looks up names")


async def test_dials_of_one_name_share_a_lookup_that_none_can_cancel(names: NameServer) -> None:
    names.answers.clear()
    dials = [asyncio.create_task(found("kafka")) for _ in range(20)]
    await asyncio.sleep(0.01)
    for each in dials[:10]:
        each.cancel()
    dials += [asyncio.create_task(found("kafka")) for _ in range(10)]
    await asyncio.sleep(0.01)
    names.answers.set()
    outcomes = await asyncio.gather(*dials, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in outcomes[:10])
    assert outcomes[10:] == [["127.0.0.1", "127.0.0.2"]] * 20
    assert len(names.asked) == 1
    await found("kafka")
    assert len(names.asked) == 2
    assert dial_module._lookups == {}


async def test_silent_names_leave_a_thread_for_others(names: NameServer) -> None:
    names.answers.clear()
    for _ in range(5):  # dials that are given up and repeated
        dials = [asyncio.create_task(found(f"silent-{each}")) for each in range(3)]
        await names.lookups(3)
        for each in dials:
            each.cancel()
        await asyncio.wait(dials)
    assert len(names.asked) == 3
    other = asyncio.create_task(found("kafka"))
    await names.lookups(4)
    assert names.asked[-1][0] == "kafka"
    names.answers.set()
    assert await other


async def test_failed_lookup_fails_every_dial(names: NameServer) -> None:
    outcomes = await asyncio.gather(*(found("unknown") for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in outcomes] == [socket.gaierror] * 3
    assert dial_module._lookups == {}


async def test_lookup_runs_on_the_event_loop_if_there_is_no_thread(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    threads = WorkerThreads(1, "aioproducer looks up names")
    monkeypatch.setattr(dial_module, "LOOKUP_THREADS", threads)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    outcomes = await asyncio.gather(*map(found, ("kafka", "kafka", "other")))
    assert outcomes == [["127.0.0.1", "127.0.0.2"]] * 3
    assert {thread for _, thread in names.asked} == {threading.main_thread()}
    with pytest.raises(socket.gaierror):
        await found("unknown")


def test_lookup_outlives_the_event_loop(names: NameServer) -> None:
    """The end of a loop waits for no lookup, and the next loop joins the lookup that is still under way."""
    names.answers.clear()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await found("kafka")

    async def go_on() -> list[str]:
        asyncio.get_running_loop().call_later(0.02, names.answers.set)
        return await found("kafka")

    asyncio.run(give_up())
    assert asyncio.run(go_on()) == ["127.0.0.1", "127.0.0.2"]
    assert len(names.asked) == 1
