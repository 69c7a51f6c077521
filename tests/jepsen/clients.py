"""Clients under test, with the error handling that their documentation recommends for transactions."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol, Self, TypeAlias

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError, ProducerFenced
from confluent_kafka import KafkaException, Producer as ConfluentProducer

from aioproducer import Producer, ProducerError, TransactionOutcomeUnknown
from tests.jepsen.history import Append
from tests.kafka.apache.jars import class_path
from tests.kafka.apache.java import find_java

REQUEST_TIMEOUT_MS: Final = 2_000
DELIVERY_TIMEOUT_MS: Final = 6_000
TRANSACTION_TIMEOUT_MS: Final = 10_000
CALL_TIMEOUT_S: Final = 8.0


class Refused(Exception):
    """The client reports that the transaction is not committed. The next call is `abort`."""


class Client(Protocol):
    """A transactional producer. An exception other than Refused means that the outcome is unknown."""

    async def begin(self) -> None: ...
    async def append(self, append: Append) -> None: ...
    async def commit(self) -> None: ...
    async def abort(self) -> None: ...
    async def close(self) -> None: ...


Start: TypeAlias = Callable[[str, str], Awaitable[Client]]
"""Starts a client from a transactional id and a client id."""


class Ours:
    """aioproducer."""

    def __init__(self, servers: str, topic: str, producer: str, client_id: str) -> None:
        self._topic = topic
        self._producer = Producer(
            servers,
            client_id=client_id,
            transactional_id=producer,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=int(CALL_TIMEOUT_S * 1000),
        )

    @classmethod
    async def start(cls, servers: str, topic: str, producer: str, client_id: str) -> Self:
        """Return a started producer."""
        client = cls(servers, topic, producer, client_id)
        try:
            await client._producer.start()
        except BaseException:
            await client.close()
            raise
        return client

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def append(self, append: Append) -> None:
        _ = await self._producer.enqueue(
            self._topic, append.value.encode(), append.key.encode(), partition=append.partition
        )

    async def commit(self) -> None:
        """Commit. A commit without an answer is awaited again."""
        while True:
            try:
                return await self._producer.commit_transaction()
            except TransactionOutcomeUnknown as error:
                if error.fatal:
                    raise
            except ProducerError as error:
                raise Refused(f"{type(error).__name__}: {error}") from error

    async def abort(self) -> None:
        await self._producer.abort_transaction()

    async def close(self) -> None:
        await self._producer.close()


class Aiokafka:
    """aiokafka."""

    def __init__(self, topic: str, producer: AIOKafkaProducer) -> None:
        self._topic = topic
        self._producer = producer
        self._sent: list[asyncio.Future[object]] = []

    @classmethod
    async def start(cls, servers: str, topic: str, producer: str, client_id: str) -> Self:
        """Return a started producer."""
        started = AIOKafkaProducer(
            bootstrap_servers=servers,
            client_id=client_id,
            transactional_id=producer,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=DELIVERY_TIMEOUT_MS,  # the only timeout; also limits the delivery
        )
        try:
            await started.start()
        except BaseException:
            await started.stop()
            raise
        return cls(topic, started)

    async def begin(self) -> None:
        self._sent.clear()
        await self._producer.begin_transaction()

    async def append(self, append: Append) -> None:
        sent = await self._producer.send(
            self._topic, append.value.encode(), append.key.encode(), partition=append.partition
        )
        sent.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # logged by asyncio otherwise
        self._sent.append(sent)

    async def commit(self) -> None:
        """Commit if all records are acknowledged: `commit_transaction` raises no error for a failed record.

        ProducerFenced leaves the outcome unknown, because an earlier attempt may have committed.
        """
        for outcome in await asyncio.gather(*self._sent, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise Refused(f"{type(outcome).__name__}: {outcome}")
        try:
            await self._producer.commit_transaction()
        except ProducerFenced:
            raise
        except AiokafkaError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    async def abort(self) -> None:
        await self._producer.abort_transaction()

    async def close(self) -> None:
        await self._producer.stop()


class Confluent:
    """confluent-kafka (librdkafka), in threads."""

    def __init__(self, servers: str, topic: str, producer: str, client_id: str) -> None:
        self._topic = topic
        self._producer = ConfluentProducer(
            {
                "bootstrap.servers": servers,
                "client.id": client_id,
                "transactional.id": producer,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "log_level": 0,
            }
        )

    @classmethod
    async def start(cls, servers: str, topic: str, producer: str, client_id: str) -> Self:
        """Return a started producer."""
        client = cls(servers, topic, producer, client_id)
        await client._call(client._producer.init_transactions)
        return client

    async def begin(self) -> None:
        self._producer.begin_transaction()

    async def append(self, append: Append) -> None:
        self._producer.produce(
            self._topic, append.value.encode(), append.key.encode(), partition=append.partition
        )
        self._producer.poll(0)

    async def commit(self) -> None:
        """Commit. Retriable errors are retried, as librdkafka's documentation recommends."""
        try:
            await self._call(self._producer.commit_transaction)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                raise Refused(str(error)) from error
            raise

    async def abort(self) -> None:
        await self._call(self._producer.abort_transaction)

    async def close(self) -> None:
        self._producer.purge()
        await asyncio.to_thread(self._drop)  # the destructor blocks

    def _drop(self) -> None:
        del self._producer

    async def _call(self, call: Callable[[float], Any]) -> None:
        while True:
            try:
                return await asyncio.to_thread(call, CALL_TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


class Java:
    """The Java client: one JVM (`JavaClient.java`) has all producers, and answers each command with a line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._answers: dict[str, asyncio.Future[str]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def launch(cls, servers: str, topic: str) -> Self:
        """Compile and start the program."""
        source = __file__.replace("clients.py", "JavaClient.java")
        timeouts = map(str, (REQUEST_TIMEOUT_MS, DELIVERY_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS))
        command = [str(find_java()), "-Xmx256m", "-cp", class_path(), source, servers, topic, *timeouts]
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL))

    async def start(self, producer: str, client_id: str) -> Client:
        """Return a started producer."""
        client = JavaProducer(partial(self._ask, client_id))
        await client.ask(f"start {producer}")
        return client

    async def stop(self) -> None:
        """End the JVM by closing its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading

    async def _ask(self, client_id: str, command: str) -> None:
        assert self._process.stdin is not None
        answered = self._answers[client_id] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(f"{client_id} {command}\n".encode())
        kind, _, detail = (await answered).partition(" ")
        if kind == "refused":
            raise Refused(detail)
        if kind != "ok":
            raise RuntimeError(detail)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            client_id, _, answer = line.decode().strip().partition(" ")
            answered = self._answers.pop(client_id, None)
            if answered is not None and not answered.done():
                answered.set_result(answer)


class JavaProducer:
    """A producer in the JVM."""

    def __init__(self, ask: Callable[[str], Awaitable[None]]) -> None:
        self.ask = ask

    async def begin(self) -> None:
        await self.ask("begin")

    async def append(self, append: Append) -> None:
        await self.ask(f"send {append.partition} {append.key} {append.value}")

    async def commit(self) -> None:
        await self.ask("commit")

    async def abort(self) -> None:
        await self.ask("abort")

    async def close(self) -> None:
        await self.ask("close")


PYTHON_CLIENTS: Final[dict[str, Any]] = {
    "aioproducer": Ours,
    "aiokafka": Aiokafka,
    "confluent-kafka": Confluent,
}
CLIENTS: Final = (*PYTHON_CLIENTS, "java")
