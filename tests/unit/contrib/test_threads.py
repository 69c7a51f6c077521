from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from aioproducer import (
    ConnectionFailed,
    DeliveryTimeout,
    Interceptor,
    ProducerClosed,
    ProducerConfig,
    ProducerError,
    ProducerRecord,
    RecordMetadata,
    SendManyError,
    TopicAuthorizationFailed,
    TopicPartition,
    WrongLoop,
)
from aioproducer.contrib import threads
from aioproducer.contrib.threads import ThreadedProducer
from aioproducer.testing import ThreadedCluster
from tests.unit.contrib.threads_rig import TOPIC, values

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


class TestCalls:
    def test_calls_return_the_producers_results(self, cluster: ThreadedCluster) -> None:
        with ThreadedProducer(cluster.bootstrap_servers) as producer:
            sent = producer.send(TOPIC, b"0", key=b"k", headers={"h": b"1"})
            assert isinstance(sent, RecordMetadata)
            assert producer.enqueue(TOPIC, b"1").result(10).offset == 1
            assert producer.send_many(TOPIC, [b"2", b"3"]).offset(1) == 3
            future = producer.enqueue(TOPIC, b"4")
            producer.flush()
            assert future.done()
            assert producer.partitions_for(TOPIC) == {0}
            assert producer.metrics()["topics"].keys() == {TOPIC}
            assert producer.state == "ready"
        assert producer.state == "closed"
        assert values(cluster) == [b"0", b"1", b"2", b"3", b"4"]

    def test_producer_may_be_created_from_a_config(self, cluster: ThreadedCluster) -> None:
        config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers)
        with ThreadedProducer.from_config(config) as producer:
            assert producer.send(TOPIC, b"v").offset == 0

    def test_errors_are_raised_in_the_calling_thread(self, cluster: ThreadedCluster) -> None:
        with ThreadedProducer(cluster.bootstrap_servers, max_request_size=1_000) as producer:
            with pytest.raises(TypeError, match="value"):
                producer.send(TOPIC, "not bytes")
            with pytest.raises(SendManyError):
                producer.send_many(TOPIC, [b"v", b"x" * 1_000])
            cluster.on("produce", times=2).answer(TopicAuthorizationFailed)
            with pytest.raises(TopicAuthorizationFailed):
                producer.send(TOPIC, b"v")
            assert isinstance(producer.enqueue(TOPIC, b"v").exception(10), TopicAuthorizationFailed)
            cluster.on("produce").delay(0.2)
            with pytest.raises(DeliveryTimeout):
                producer.send(TOPIC, b"v", timeout_s=0.05)

    def test_future_of_enqueue_cannot_be_cancelled(self, cluster: ThreadedCluster) -> None:
        with ThreadedProducer(cluster.bootstrap_servers, linger_ms=100) as producer:
            future = producer.enqueue(TOPIC, b"v")
            assert not future.cancel()
            assert future.result(10).offset == 0

    def test_serializers_see_the_context_variables_of_the_call(self, cluster: ThreadedCluster) -> None:
        user: ContextVar[str] = ContextVar("user", default="nobody")
        with ThreadedProducer(
            cluster.bootstrap_servers, value_serializer=lambda _: user.get().encode()
        ) as producer:
            user.set("ada")
            producer.send(TOPIC, None)
        assert values(cluster) == [b"ada"]

    def test_concurrent_threads_share_batches_and_keep_their_order(self, cluster: ThreadedCluster) -> None:
        threads, each = 8, 50

        def send(name: int) -> list[Future[RecordMetadata]]:
            return [producer.enqueue(TOPIC, b"%d %d" % (name, number)) for number in range(each)]

        with ThreadedProducer(cluster.bootstrap_servers, linger_ms=20) as producer:
            with ThreadPoolExecutor(threads) as pool:
                futures = [future for sent in pool.map(send, range(threads)) for future in sent]
            offsets = [future.result(10).offset for future in futures]
        assert sorted(offsets) == list(range(threads * each))
        written = [tuple(map(int, (value or b"").split())) for value in values(cluster)]
        for name in range(threads):
            assert [number for by, number in written if by == name] == list(range(each))
        assert len(cluster.batches(TOPIC, 0)) < threads * each / 5


class TestLife:
    def test_calls_before_the_start_and_after_the_close_are_refused(self, cluster: ThreadedCluster) -> None:
        producer = ThreadedProducer(cluster.bootstrap_servers)
        with pytest.raises(ProducerClosed, match="not started"):
            producer.send(TOPIC, b"v")
        assert producer.close() == 0
        assert producer.metrics()["topics"] == {}
        with producer:
            with pytest.raises(ProducerClosed, match="started once; this one is ready"):
                producer.start()
            with pytest.raises(ValueError, match="timeout_s"):
                producer.close(-1)
            producer.send(TOPIC, b"v")
        assert producer.close() == 0
        for call in (producer.start, producer.flush):
            with pytest.raises(ProducerClosed, match="closed"):
                call()
        assert producer.metrics()["topics"].keys() == {TOPIC}

    def test_failed_start_may_be_repeated(self, cluster: ThreadedCluster) -> None:
        producer = ThreadedProducer(cluster.bootstrap_servers)
        cluster.stop_broker(1)
        before = threading.active_count()
        with pytest.raises(ConnectionFailed):
            producer.start()
        assert threading.active_count() == before
        cluster.start_broker(1)
        with producer:
            producer.send(TOPIC, b"v")

    def test_close_without_a_wait_fails_the_remaining_records(self, cluster: ThreadedCluster) -> None:
        with ThreadedProducer(cluster.bootstrap_servers) as producer:
            producer.send(TOPIC, b"v")
            cluster.on("produce", times=None).drop()
            future = producer.enqueue(TOPIC, b"v")
            assert producer.close(timeout_s=0) == 1
            assert isinstance(future.exception(0), ProducerClosed)

    def test_close_under_load_loses_no_acknowledged_record(self, cluster: ThreadedCluster) -> None:
        acknowledged: list[RecordMetadata] = []
        busy = threading.Barrier(9)

        def send_until_closed() -> None:
            acknowledged.append(producer.send(TOPIC, b"v"))
            busy.wait()
            with suppress(ProducerClosed):
                while True:
                    acknowledged.append(producer.send(TOPIC, b"v"))

        with ThreadPoolExecutor(10) as pool:
            with ThreadedProducer(cluster.bootstrap_servers) as producer:
                senders = [pool.submit(send_until_closed) for _ in range(8)]
                busy.wait(10)
                closing = [pool.submit(producer.close) for _ in range(2)]
            assert [each.result(10) for each in closing] == [0, 0]
            for sender in senders:
                sender.result(10)
        assert sorted(each.offset for each in acknowledged) == list(range(len(values(cluster))))

    def test_slow_calls_return_before_the_thread_ends(self, cluster: ThreadedCluster) -> None:
        waits = threading.Event()

        async def slow() -> str:
            waits.set()
            while producer.state != "closed":  # noqa: ASYNC110 - what it sees is a moment within the closing
                await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
            return "outcome"

        with ThreadPoolExecutor(1) as pool:
            with ThreadedProducer(cluster.bootstrap_servers) as producer:
                calling = pool.submit(producer._call, slow)
                assert waits.wait(10)
            assert calling.result(10) == "outcome"

    def test_end_of_the_program_sends_all_records(self, cluster: ThreadedCluster) -> None:
        program = (
            "import sys\n"
            "from aioproducer.contrib.threads import ThreadedProducer\n"
            "producer = ThreadedProducer(sys.argv[1], linger_ms=60_000)\n"
            "producer.start()\n"
            "producer.enqueue('orders', b'v')\n"
        )
        command = [sys.executable, "-W", "default", "-c", program, cluster.bootstrap_servers]
        quiet = {**os.environ, "PYTHONASYNCIODEBUG": ""}  # else it tells on standard error what took long
        ended = subprocess.run(command, check=True, capture_output=True, timeout=30, env=quiet)
        assert ended.stderr == b""
        assert values(cluster) == [b"v"]

    @pytest.mark.parametrize(
        ("where", "lacking"),
        [
            ("asyncio.new_event_loop", OSError(errno.EMFILE, "too many open files")),
            ("threading.Thread.start", RuntimeError("can't start new thread")),
        ],
    )
    def test_failed_thread_start_can_be_repeated(
        self, cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch, where: str, lacking: Exception
    ) -> None:
        def refuse(*_: object) -> None:
            raise lacking

        producer = ThreadedProducer(cluster.bootstrap_servers)
        with monkeypatch.context() as patched:
            patched.setattr(where, refuse)
            with pytest.raises(type(lacking)):
                producer.start()
        with producer:
            producer.send(TOPIC, b"v")

    # threading ignores SystemExit; pytest does not
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_system_exit_in_user_code_closes_the_producer(self, cluster: ThreadedCluster) -> None:
        def serialize(value: bytes) -> bytes:
            return value or sys.exit("enough")

        with ThreadedProducer(cluster.bootstrap_servers, value_serializer=serialize) as producer:
            producer.send(TOPIC, b"v")
            with pytest.raises(SystemExit):
                producer.send(TOPIC, b"")
            with pytest.raises(ProducerClosed):
                producer.send(TOPIC, b"v")

    def test_close_cancels_tasks_of_user_code(
        self, cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(threads, "TASKS_WAIT_S", 0.01)
        begun: list[asyncio.Task[None]] = []

        class Reports(Interceptor):
            def on_send(self, record: ProducerRecord) -> ProducerRecord:
                begun.append(asyncio.create_task(asyncio.sleep(3_600)))
                return record

        with ThreadedProducer(cluster.bootstrap_servers, interceptors=[Reports()]) as producer:
            producer.send(TOPIC, b"v")
        assert begun[0].cancelled()


class Calls(Interceptor):
    """Calls the producer from where the producer calls it."""

    def __init__(self) -> None:
        self.call: Callable[[], Any] | None = None
        self.raised: BaseException | None = None

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ProducerError | None, record: TopicPartition
    ) -> None:
        if self.call is not None:
            with pytest.raises(WrongLoop, match="call from another thread") as raised:
                self.call()
            self.raised = raised.value


class TestWrongLoop:
    def test_user_code_on_the_thread_cannot_call_the_producer(self, cluster: ThreadedCluster) -> None:
        calls = Calls()
        with ThreadedProducer(cluster.bootstrap_servers, interceptors=[calls]) as producer:
            calls.call = producer.flush
            producer.send(TOPIC, b"v")
            assert isinstance(calls.raised, WrongLoop)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_forked_child_needs_its_own_producer(self, cluster: ThreadedCluster) -> None:
        with ThreadedProducer(cluster.bootstrap_servers) as producer:
            producer.send(TOPIC, b"parent")
            child = os.fork()
            if child == 0:  # it must not come back into the test
                signal.alarm(20)  # nor wait for ever
                try:
                    with pytest.raises(WrongLoop, match="parent process"):
                        producer.send(TOPIC, b"parent's")
                    with pytest.raises(WrongLoop, match="parent process"):
                        producer.start()
                    assert producer.close() == 0
                    with ThreadedProducer(cluster.bootstrap_servers) as own:
                        own.send(TOPIC, b"child")
                    os._exit(0)
                finally:
                    os._exit(1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            producer.send(TOPIC, b"parent")
        assert values(cluster) == [b"parent", b"child", b"parent"]
