"""Ctrl-C and other signals in the midst of a call."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

import pytest

from aioproducer import LeaderNotAvailable, Producer, ProducerClosed
from aioproducer.contrib.threads import ThreadedProducer
from aioproducer.testing import ThreadedCluster
from tests.unit.contrib.threads_rig import TOPIC, values

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def interrupt() -> None:
    """Press Ctrl-C: the main thread, wherever it waits, gets a KeyboardInterrupt."""
    os.kill(os.getpid(), signal.SIGINT)


class TestSignals:
    @pytest.mark.parametrize("queued", [False, True])
    def test_signal_handler_may_close_the_producer_during_a_call(
        self, cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch, *, queued: bool
    ) -> None:
        hand_over = asyncio.run_coroutine_threadsafe

        def interrupted(call: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Future[Any]:
            """Do as *hand_over*, and be interrupted before or after the call is in the queue of the event loop."""
            monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", hand_over)
            if not queued:
                producer.close()
            outcome = hand_over(call, loop)
            if queued:
                producer.close()
            return outcome

        producer = ThreadedProducer(cluster.bootstrap_servers)
        producer.start()
        producer.send(TOPIC, b"before")
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
        with nullcontext() if queued else pytest.raises(ProducerClosed):
            producer.send(TOPIC, b"v")
        assert producer.state == "closed"
        assert values(cluster) == ([b"before", b"v"] if queued else [b"before"])


class TestInterrupted:
    def test_interrupted_call_is_cancelled(self, cluster: ThreadedCluster) -> None:
        with ThreadedProducer(cluster.bootstrap_servers) as producer:
            asked = cluster.on("metadata", topic=TOPIC, times=None).answer(LeaderNotAvailable)

            def once_it_waits() -> None:
                asyncio.run(asked.happened())
                interrupt()

            other = threading.Thread(target=once_it_waits)
            other.start()
            with pytest.raises(KeyboardInterrupt):
                producer.send(TOPIC, b"cancelled")
            other.join()
            asked.remove()
            producer.send(TOPIC, b"sent")
        assert values(cluster) == [b"sent"]

    def test_interrupted_close_in_progress_fails_all_records(
        self, cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        close = Producer.close

        async def interrupted(producer: Producer, timeout_s: float | None = None) -> int:
            if timeout_s is None:
                asyncio.get_running_loop().call_soon(interrupt)
            return await close(producer, timeout_s)

        monkeypatch.setattr(Producer, "close", interrupted)
        producer = ThreadedProducer(cluster.bootstrap_servers)
        producer.start()
        producer.send(TOPIC, b"v")
        cluster.on("produce", times=None).drop()
        future = producer.enqueue(TOPIC, b"v")
        with pytest.raises(KeyboardInterrupt):
            producer.close()
        assert isinstance(future.exception(0), ProducerClosed)
        assert producer.state == "closed"

    def test_interrupted_close_fails_all_records(
        self, cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with ThreadedProducer(cluster.bootstrap_servers) as producer:
            cluster.on("produce", times=None).drop()
            future = producer.enqueue(TOPIC, b"v")
            with monkeypatch.context() as patched:
                patched.setattr(producer, "_call", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    producer.close()
        assert isinstance(future.exception(0), ProducerClosed)
        assert producer.state == "closed"
