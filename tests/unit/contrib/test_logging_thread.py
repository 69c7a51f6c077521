from __future__ import annotations

import asyncio
import logging
import logging.config
import logging.handlers
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest

from aioproducer.contrib.logging import KafkaHandler
from aioproducer.testing import ThreadedCluster
from tests.unit.contrib.logging_rig import messages

pytestmark = pytest.mark.kafka_cluster(topics={"logs": 1})


def test_threads_lose_and_double_nothing(
    kafka_cluster: ThreadedCluster, logger: logging.Logger, handler: KafkaHandler
) -> None:
    def work(name: int) -> None:
        for each in range(200):
            logger.info("%d-%d", name, each)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.flush()
    found = messages(kafka_cluster)
    assert sorted(found) == sorted(f"{name}-{each}" for name in range(4) for each in range(200))
    for name in range(4):
        assert [each for each in found if each.startswith(f"{name}-")] == [f"{name}-{i}" for i in range(200)]


def test_unreachable_cluster_costs_log_records_only(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    handler = KafkaHandler("logs", "127.0.0.1:1", capacity=5, close_timeout_s=0.1)
    logger.addHandler(handler)
    for each in range(20):
        logger.info("%d", each)
    assert handler.dropped >= 14
    handler.flush()
    handler.close()
    assert handler.dropped == 20
    assert "logs.dropped topic=logs dropped=" in caplog.text


def test_queue_is_bounded_in_bytes(logger: logging.Logger) -> None:
    handler = KafkaHandler("logs", "127.0.0.1:1", buffer_memory=100_000, close_timeout_s=0)
    logger.addHandler(handler)
    for _ in range(20):
        logger.info("x" * 10_000)
    assert 10 <= handler.dropped <= 11  # the thread may hold one log record
    logger.info("x" * 200_000)
    assert 11 <= handler.dropped <= 12
    handler.close()
    assert handler.dropped == 21


def test_bytes_of_sent_log_records_are_free_again(
    kafka_cluster: ThreadedCluster, logger: logging.Logger
) -> None:
    handler = KafkaHandler("logs", kafka_cluster.bootstrap_servers, buffer_memory=100_000)
    logger.addHandler(handler)
    for _ in range(20):
        logger.info("x" * 30_000)
        handler.flush()
    assert len(messages(kafka_cluster)) == 20
    assert handler.dropped == 0


def test_shutdown_is_bounded_without_a_cluster(logger: logging.Logger) -> None:
    handler = KafkaHandler("logs", "127.0.0.1:1", close_timeout_s=0.5)
    logger.addHandler(handler)
    logger.info("lost")
    began_at = time.monotonic()
    logging.shutdown([weakref.ref(handler)])
    logging.shutdown([weakref.ref(handler)])
    assert 0.4 < time.monotonic() - began_at < 1.5
    assert handler.dropped == 1
    assert "aioproducer-logs" not in {thread.name for thread in threading.enumerate()}


def test_close_waits_again_after_an_old_flush(
    kafka_cluster: ThreadedCluster, logger: logging.Logger, handler: KafkaHandler
) -> None:
    kafka_cluster.stop_broker(1)
    logger.info("late")
    handler._close_timeout_s = 0.1
    handler.flush()
    kafka_cluster.start_broker(1)
    handler._close_timeout_s = 20
    handler._flush_failed_at -= 10
    handler.close()
    assert messages(kafka_cluster) == ["late"]
    assert handler.dropped == 0


def test_thread_that_cannot_start_costs_log_records_only(
    kafka_cluster: ThreadedCluster,
    logger: logging.Logger,
    handler: KafkaHandler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    other = KafkaHandler("logs", kafka_cluster.bootstrap_servers)
    logger.addHandler(other)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        logger.info("a")
        handler.flush()
        handler.close()
    assert handler.dropped == 1
    logger.info("b")
    other.flush()
    assert messages(kafka_cluster) == ["a", "b"]
    assert (handler.dropped, other.dropped) == (2, 0)


def test_interrupt_while_the_thread_wakes_stalls_nothing(
    kafka_cluster: ThreadedCluster,
    logger: logging.Logger,
    handler: KafkaHandler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    logger.info("a")
    handler.flush()
    while not handler._asleep:
        time.sleep(0.001)
    with monkeypatch.context() as patch:
        patch.setattr(handler, "_call", interrupt)
        with pytest.raises(KeyboardInterrupt):
            logger.info("b")
    logger.info("c")
    handler.flush()
    assert messages(kafka_cluster) == ["a", "b", "c"]


def test_interrupt_while_the_thread_starts_leaves_one_thread(
    kafka_cluster: ThreadedCluster,
    logger: logging.Logger,
    handler: KafkaHandler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            logger.info("a")
    logger.info("b")
    handler.flush()
    assert messages(kafka_cluster) == ["a", "b"]
    assert [thread.name for thread in threading.enumerate()].count("aioproducer-logs") == 1


def test_blocked_event_loop_delays_no_log_records(
    kafka_cluster: ThreadedCluster, logger: logging.Logger, handler: KafkaHandler
) -> None:
    async def main() -> None:
        logger.info("from a task")
        handler.flush()  # blocks the event loop
        assert messages(kafka_cluster) == ["from a task"]

    asyncio.run(main())
    logger.info("after the loop")
    handler.flush()
    assert messages(kafka_cluster) == ["from a task", "after the loop"]


def test_closed_handler_counts_and_raises_nothing(
    kafka_cluster: ThreadedCluster, logger: logging.Logger, handler: KafkaHandler
) -> None:
    logger.info("before")
    handler.close()
    handler.close()
    handler.flush()
    logger.info("after")
    assert messages(kafka_cluster) == ["before"]
    assert handler.dropped == 1


def test_handler_without_log_records_starts_no_thread(handler: KafkaHandler) -> None:
    handler.flush()
    handler.close()
    assert "aioproducer-logs" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_sends_its_own_log_records(kafka_cluster: ThreadedCluster) -> None:
    program = (
        "import logging, os, sys\n"
        "from aioproducer.contrib.logging import KafkaHandler\n"
        f"logging.basicConfig(level=20, handlers=[KafkaHandler('logs', {kafka_cluster.bootstrap_servers!r})])\n"
        "logging.info('before')\n"
        "child = os.fork()\n"
        "logging.info('parent' if child else 'child')\n"
        "if not child:\n"
        "    logging.shutdown(); os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)
    assert sorted(messages(kafka_cluster)) == ["before", "child", "parent"]


def test_end_of_the_program_delivers_log_records(kafka_cluster: ThreadedCluster) -> None:
    program = (
        "import atexit, logging\n"
        "from aioproducer.contrib.logging import KafkaHandler\n"
        f"logging.basicConfig(level=20, handlers=[KafkaHandler('logs', {kafka_cluster.bootstrap_servers!r})])\n"
        "atexit.register(logging.info, 'at exit')\n"
        "[logging.info('%d', each) for each in range(100)]\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert ended.stderr == b""
    assert messages(kafka_cluster) == [*map(str, range(100)), "at exit"]


def test_first_log_record_at_exit_does_no_harm(kafka_cluster: ThreadedCluster) -> None:
    program = (
        "import atexit, logging\n"
        "from aioproducer.contrib.logging import KafkaHandler\n"
        f"logging.basicConfig(level=20, handlers=[KafkaHandler('logs', {kafka_cluster.bootstrap_servers!r})])\n"
        "atexit.register(logging.info, 'at exit')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert ended.stderr == b""
