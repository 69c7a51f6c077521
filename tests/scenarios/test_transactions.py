"""Transactions on the in-process broker, in virtual time: the requests and their times."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from aioproducer import Producer, ProducerError, TransactionAborted, TransactionStateError
from aioproducer._core.batching.batch import Batch
from aioproducer._core.sender.requests import Encoder, Unencodable
from aioproducer.testing import Cluster
from tests.scenarios.rig import cluster, now, scenario

ID = "orders-1"
in_each_version = pytest.mark.parametrize("version", [1, 2], ids=["TV1", "TV2"])
REQUESTS = ("find_coordinator", "init_producer_id", "add_partitions_to_txn", "produce", "end_txn")


def requests(opened: Cluster) -> dict[str, int]:
    return {name: opened.request_count(name) for name in REQUESTS}


def added(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in REQUESTS if after[name] != before[name]}


@in_each_version
@scenario
async def test_transaction_costs_one_end_request_in_version_2(version: int) -> None:
    async with (
        cluster(partitions=2, transaction_version=version) as opened,
        Producer(opened.bootstrap_servers, transactional_id=ID) as producer,
    ):
        before = requests(opened)
        for _ in range(3):
            async with producer.transaction():
                await producer.send_many("orders", [b"a", b"b"], partitions=[0, 1])
        expected = {"produce": 3, "end_txn": 3}
        if version == 1:
            expected["add_partitions_to_txn"] = 3
        assert added(before, requests(opened)) == expected


@in_each_version
@scenario
async def test_empty_transaction_sends_no_request(version: int) -> None:
    async with (
        cluster(transaction_version=version) as opened,
        Producer(opened.bootstrap_servers, transactional_id=ID) as producer,
    ):
        before = requests(opened)
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
        assert added(before, requests(opened)) == {}


@scenario
async def test_records_in_version_2_wait_for_no_answer() -> None:
    """A leader takes nothing but sequence 0 first there, so several batches may be on their way at once."""
    async with (
        cluster(transaction_version=2) as opened,
        Producer(
            opened.bootstrap_servers, transactional_id=ID, batch_size=100, max_request_size=200
        ) as producer,
    ):
        async with producer.transaction():
            await producer.send("orders", b"to get acquainted")
        opened.on("produce").delay(1.0)
        async with producer.transaction():
            began_at = now()
            sending = [asyncio.create_task(producer.send("orders", b"x" * 90)) for _ in range(4)]
            await asyncio.sleep(0.5)
            assert producer.metrics()["producer"]["requests_in_flight"] == 4
            await asyncio.gather(*sending)
        assert now() - began_at < 2
        seen = opened.records("orders", 0, isolation_level="read_committed")
        assert len(seen) == 5


@scenario
async def test_end_waits_for_markers_of_the_last_transaction() -> None:
    """Version 2 holds a Produce during the markers for 20 ms; the next transaction waits a little longer."""
    async with (
        cluster(transaction_version=2) as opened,
        Producer(opened.bootstrap_servers, transactional_id=ID) as producer,
    ):
        took = []
        for held_s in (0.0, 0.025, 0.0, 0.0):
            if held_s:
                opened.on("produce").delay(held_s)
            began_at = now()
            async with producer.transaction():
                await producer.send("orders", b"v")
            took.append(now() - began_at)
        assert took[0] < 0.001
        assert took[1] >= 0.025
        assert all(0.00019 <= each < 0.00021 for each in took[2:]), took  # otherwise no time passes here
        assert len(opened.records("orders", 0, isolation_level="read_committed")) == 4


@scenario
async def test_records_outside_a_transaction_are_refused() -> None:
    async with (
        cluster() as opened,
        Producer(opened.bootstrap_servers, transactional_id=ID) as producer,
    ):
        for call in (producer.send, producer.enqueue):
            with pytest.raises(TransactionStateError, match="no transaction is open"):
                await call("orders", b"v")
        with pytest.raises(TransactionStateError, match="no transaction is open"):
            _ = producer.send_nowait("orders", b"v")
        with pytest.raises(TransactionStateError, match="no transaction is open"):
            await producer.send_many("orders", [b"v"])
        with pytest.raises(TransactionStateError, match="no transaction is open"):
            await producer.send("orders", b"v", timeout_s=5)
        assert opened.records("orders", 0) == []


@scenario
async def test_failure_before_the_append_requires_an_abort() -> None:
    """The record fails the transaction like a record refused by a broker; otherwise a manual commit would miss it."""

    def serialize(value: bytes) -> bytes:
        if value == b"bad":
            raise ValueError(value)
        return value

    async with (
        cluster(auto_create_topics=False) as opened,
        Producer(
            opened.bootstrap_servers,
            transactional_id=ID,
            value_serializer=serialize,
            max_request_size=1000,
            max_block_ms=500,
        ) as producer,
    ):
        for send in (
            lambda: producer.send("orders", b"bad"),
            lambda: producer.enqueue("orders", b"x" * 1001),
            lambda: producer.send("nowhere", b"v"),
            lambda: producer.send_many("orders", [b"good", b"bad"]),
            lambda: producer.send_many("orders", [b"good", b"x" * 1001]),
            lambda: producer.send_many("nowhere", [b"v"]),
        ):
            await producer.begin_transaction()
            with pytest.raises(ProducerError) as raised:
                _ = await send()
            assert (raised.value.abortable, raised.value.fatal) == (True, False)
            await producer.abort_transaction()
        with pytest.raises(ProducerError) as raised:
            _ = producer.send_nowait("orders", b"x")
        assert not raised.value.abortable  # no transaction is open
        async with producer.transaction():
            with pytest.raises(ProducerError) as raised:
                _ = producer.send_nowait("elsewhere", b"v")
            assert not raised.value.abortable  # the caller may try again
            _ = await producer.send("orders", b"v")


@pytest.mark.parametrize("before", [0, 1], ids=["the-first", "the-second"])
@in_each_version
@scenario
async def test_abort_during_compression_delays_no_transaction(
    version: int, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch has sequences and was never written, so the next transaction needs another epoch."""

    async def compress_for_a_second(encoder: Encoder, batches: Sequence[Batch]) -> Unencodable:
        await asyncio.sleep(encoder.leaves_loop(batches))
        return encoder.encode_all(batches)

    monkeypatch.setattr(Encoder, "encode_off_loop", compress_for_a_second)
    async with (
        cluster(partitions=3, transaction_version=version) as opened,
        Producer(
            opened.bootstrap_servers,
            transactional_id=ID,
            linger_ms=0,
            batch_size=70_000,
            compression_type="gzip",
        ) as producer,
    ):
        for _ in range(before):
            async with producer.transaction():
                await producer.send_many("orders", [b"before"] * 3, partitions=range(3))
        for each in range(3):
            await producer.begin_transaction()
            large = [
                await producer.enqueue("orders", bytes(69_000), partition=index % 3) for index in range(6)
            ]
            await asyncio.sleep(0.1)
            began_at, requests_before = now(), requests(opened)
            await producer.abort_transaction()
            for future in large:
                with pytest.raises(TransactionAborted):
                    await future
            assert "produce" not in added(requests_before, requests(opened))
            async with producer.transaction():
                await producer.send_many("orders", [b"after %d" % each] * 3, partitions=range(3))
            assert now() - began_at < 1
        seen = [
            record.value
            for partition in range(3)
            for record in opened.records("orders", partition, isolation_level="read_committed")
        ]
        assert Counter(seen) == Counter({b"before": 3 * before, b"after 0": 3, b"after 1": 3, b"after 2": 3})
