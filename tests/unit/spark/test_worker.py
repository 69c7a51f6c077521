"""Resources that a process keeps between tasks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer._core.net.connection import Connection
from aioproducer._lifecycle import State
from aioproducer.errors import ConnectionFailed, InvalidProducerEpoch
from aioproducer.spark.decision_records import decision
from aioproducer.spark.delivery import BatchId, Guarantee
from aioproducer.spark.kafka_port import KafkaPort
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.worker import IDLE_PRODUCERS, Worker, worker
from aioproducer.testing import ThreadedCluster
from aioproducer.transaction_admin import TransactionAdmin

pytestmark = pytest.mark.kafka_cluster(topics={"orders": 1})


@pytest.fixture
def host() -> Iterator[Worker]:
    host = Worker()
    yield host
    host.close()


def settings(cluster: ThreadedCluster, client_id: str = "spark") -> ProducerSettings:
    return ProducerSettings((("bootstrap.servers", cluster.bootstrap_servers), ("client.id", client_id)))


def test_tasks_with_equal_options_share_a_producer(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    with host.producer(settings(kafka_cluster)) as first:
        sent = host.submit(first.send("orders", b"v")).result()
    with host.producer(settings(kafka_cluster)) as second:
        assert host.submit(second.send("orders", b"v")).result().offset == sent.offset + 1
    with host.producer(settings(kafka_cluster, "another")) as third:
        pass
    assert first is second
    assert first is not third


def test_concurrent_tasks_use_separate_producers(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    with host.producer(settings(kafka_cluster)) as one, host.producer(settings(kafka_cluster)) as other:
        assert one is not other


def test_failed_producer_is_closed_and_not_reused(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    with pytest.raises(ZeroDivisionError), host.producer(settings(kafka_cluster)) as broken:
        raise ZeroDivisionError
    assert broken.state == State.CLOSED
    with host.producer(settings(kafka_cluster)) as fresh:
        assert fresh is not broken
        host.submit(fresh.send("orders", b"v")).result()


def test_producer_closed_while_idle_is_not_reused(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    with host.producer(settings(kafka_cluster)) as ended:
        pass
    host.submit(ended.close()).result()
    with host.producer(settings(kafka_cluster)) as fresh:
        assert fresh is not ended


def test_producer_with_failed_start_is_closed(host: Worker) -> None:
    nobody = ProducerSettings((("bootstrap.servers", "127.0.0.1:1"),))
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"), host.producer(nobody):
        raise AssertionError
    assert not host._idle


def test_oldest_idle_producer_is_closed_above_the_limit(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    producers = []
    for number in range(IDLE_PRODUCERS + 1):
        with host.producer(settings(kafka_cluster, f"client-{number}")) as producer:
            producers.append(producer)
    assert [each.state for each in producers] == [State.CLOSED] + [State.READY] * IDLE_PRODUCERS


async def the_admin(kafka: KafkaPort) -> TransactionAdmin:
    return kafka._admin


def test_clients_are_reused(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    first, second = (host.run_with_kafka(settings(kafka_cluster), "p", the_admin) for _ in range(2))
    assert first is second
    decided = [host.submit(host.decisions(settings(kafka_cluster), "p")).result() for _ in range(2)]
    assert decided[0] is decided[1]
    assert host.run_with_kafka(settings(kafka_cluster, "another"), "p", the_admin) is not first


def test_connections_of_one_of_two_concurrent_callers_are_kept(
    host: Worker, kafka_cluster: ThreadedCluster
) -> None:
    both = threading.Barrier(2)

    async def meet(kafka: KafkaPort) -> TransactionAdmin:
        await asyncio.to_thread(both.wait, 10)
        return await the_admin(kafka)

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(host.run_with_kafka, settings(kafka_cluster), "p", meet) for _ in range(2)]
        admins = [each.result(20) for each in asking]
    assert sorted(each._opened is None for each in admins) == [False, True]
    assert host.run_with_kafka(settings(kafka_cluster), "p", the_admin)._opened is not None


def test_clients_reconnect_after_a_failure(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    async def fail(kafka: KafkaPort) -> None:
        broken.append(await the_admin(kafka))
        raise ZeroDivisionError

    broken: list[TransactionAdmin] = []
    with pytest.raises(ZeroDivisionError):
        host.run_with_kafka(settings(kafka_cluster), "p", fail)
    assert host.run_with_kafka(settings(kafka_cluster), "p", the_admin) is not broken[0]
    assert broken[0]._opened is None


@pytest.mark.parametrize("how", ["disconnect", "restart"])
def test_connections_that_were_lost_meanwhile_are_made_again(
    host: Worker, kafka_cluster: ThreadedCluster, how: str
) -> None:
    """The second batch connects again as if it were the first."""

    async def run_with_kafka(kafka: KafkaPort) -> tuple[TransactionAdmin, bool, int]:
        driver = await kafka.take_over("p.d")
        await kafka.write(driver, decision("p", BatchId("query a", 7, ""), Guarantee.LOG))
        known = (await kafka.describe(["p.d"]))["p.d"]
        return kafka._admin, known is not None, (await kafka.decisions())["query a"].number

    first = host.run_with_kafka(settings(kafka_cluster), "p", run_with_kafka)
    if how == "disconnect":
        kafka_cluster.disconnect(1)
    else:
        kafka_cluster.stop_broker(1)
        kafka_cluster.start_broker(1)
    assert host.run_with_kafka(settings(kafka_cluster), "p", run_with_kafka) == first


def test_clients_reconnect_after_a_long_idle_time(
    host: Worker, kafka_cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = host.run_with_kafka(settings(kafka_cluster), "p", the_admin)
    monkeypatch.setattr("aioproducer.spark.worker.KEPT_S", 0.0)
    assert host.run_with_kafka(settings(kafka_cluster), "p", the_admin) is not first
    assert first._opened is None


def test_number_of_idle_admin_connections_is_limited(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    admins = [
        host.run_with_kafka(settings(kafka_cluster, f"client-{number}"), "p", the_admin)
        for number in range(IDLE_PRODUCERS + 1)
    ]
    assert [each._opened is None for each in admins] == [True] + [False] * IDLE_PRODUCERS
    host.close()
    assert all(each._opened is None for each in admins)


def write(host: Worker, where: ProducerSettings, name: str) -> None:
    with host.transactional(where, name) as producer:
        host.submit(producer.begin_transaction()).result()
        host.submit(producer.send("orders", b"v")).result()
        host.submit(producer.commit_transaction()).result()


def test_transactional_producers_hand_their_connection_on(
    host: Worker, kafka_cluster: ThreadedCluster
) -> None:
    for number in range(3):
        write(host, settings(kafka_cluster), f"t-{number}")
    assert kafka_cluster.request_count("api_versions") == 1
    assert len(kafka_cluster.records("orders", 0, isolation_level="read_committed")) == 3
    write(host, settings(kafka_cluster, "another"), "t-3")
    assert kafka_cluster.request_count("api_versions") == 2


def test_concurrent_transactional_producers_share_nothing(
    host: Worker, kafka_cluster: ThreadedCluster
) -> None:
    with host.transactional(settings(kafka_cluster), "t-0"):
        write(host, settings(kafka_cluster), "t-1")
        assert kafka_cluster.request_count("api_versions") == 2
    assert len(host._caches) == 1
    write(host, settings(kafka_cluster), "t-2")
    assert kafka_cluster.request_count("api_versions") == 2


def test_connection_is_closed_after_a_failure(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    def write_half() -> None:
        with host.transactional(settings(kafka_cluster), "t") as broken:
            host.submit(broken.begin_transaction()).result()
            host.submit(broken.send("orders", b"v")).result()
            assert broken._engine is not None
            of_the_broken.append(broken._engine.pool.get(1))
            raise ZeroDivisionError

    of_the_broken: list[Connection | None] = []
    with pytest.raises(ZeroDivisionError):
        write_half()
    assert kafka_cluster.transaction_state("t") == "CompleteAbort"
    [connection] = of_the_broken
    assert connection is not None
    assert connection.socket_closed.done()
    assert not host._caches
    write(host, settings(kafka_cluster), "t")
    assert kafka_cluster.request_count("api_versions") == 2


def test_fenced_producer_closes_its_connections(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    def write_late() -> None:
        with host.transactional(settings(kafka_cluster), "t") as fenced:
            with host.transactional(settings(kafka_cluster), "t"):
                pass
            host.submit(fenced.begin_transaction()).result()
            host.submit(fenced.send("orders", b"v")).result()

    with pytest.raises(InvalidProducerEpoch):
        write_late()
    with host.transactional(settings(kafka_cluster), "t"):
        assert kafka_cluster.request_count("api_versions") == 2  # that of who has fenced
    write(host, settings(kafka_cluster), "t")
    assert len(kafka_cluster.records("orders", 0, isolation_level="read_committed")) == 1


@pytest.mark.parametrize("how", ["disconnect", "restart"])
def test_lost_idle_connection_is_replaced(host: Worker, kafka_cluster: ThreadedCluster, how: str) -> None:
    write(host, settings(kafka_cluster), "t")
    if how == "disconnect":
        kafka_cluster.disconnect(1)
    else:
        kafka_cluster.stop_broker(1)
        kafka_cluster.start_broker(1)
    write(host, settings(kafka_cluster), "t")
    assert kafka_cluster.request_count("api_versions") == 2
    assert len(kafka_cluster.records("orders", 0, isolation_level="read_committed")) == 2


def test_number_of_connection_caches_is_limited(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    for number in range(IDLE_PRODUCERS + 1):
        write(host, settings(kafka_cluster, f"client-{number}"), "t")
    assert len(host._caches) == IDLE_PRODUCERS
    left = [connection for each in host._caches.values() for _, connection in each._connections]
    assert len(left) == IDLE_PRODUCERS
    host.close()
    assert all(each.socket_closed.done() for each in left)


def test_closing_ends_all_and_twice_is_fine(kafka_cluster: ThreadedCluster) -> None:
    host = Worker()
    with host.producer(settings(kafka_cluster)) as producer:
        pass
    host.close()
    host.close()
    assert producer.state == State.CLOSED


def test_threads_that_ask_first_at_once_get_the_same_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    class Meets(Worker):
        """Is not made before all of them are about to have one."""

        def __init__(self) -> None:
            both.wait(10)
            super().__init__()
            made.append(self)

    made: list[Worker] = []
    both = threading.Barrier(2)
    monkeypatch.setattr("aioproducer.spark.worker.Worker", Meets)
    monkeypatch.setattr("aioproducer.spark.worker._workers", {})
    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(worker) for _ in range(2)]
        first, second = (each.result(20) for each in asking)
    assert first is second
    first.close()
    assert all(each._loop.is_closed() for each in made)
    assert len(made) == 2


def test_worker_is_one_per_process_and_new_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = worker()
    assert worker() is ours
    monkeypatch.setattr(os, "getpid", lambda: -1)
    theirs = worker()
    assert theirs is not ours
    ours.close()  # in the child: there is no thread there that could end it
    assert not ours._loop.is_closed()
    theirs.close()
    monkeypatch.undo()
    ours.close()
    assert ours._loop.is_closed()
