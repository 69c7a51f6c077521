"""A proxy before a real broker, which does to single requests what a broker cannot be told to."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, Self

from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer._core.protocol.schema import Message, Request, decode_request, decode_start, encode_response
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    Coordinator,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_LENGTH: Final = struct.Struct(">i")
_START: Final = struct.Struct(">hhi")


class What(Enum):
    """What happens to a request."""

    REFUSED = auto()
    """The broker never sees it; the client gets an error code."""
    REFUSED_AFTER = auto()
    """The broker does as it is told, and the client gets an error code."""
    RESET = auto()
    """The connection breaks, and the broker never sees the request."""
    RESET_AFTER = auto()
    """The broker does as it is told, and the connection breaks in place of the answer."""
    MUTED = auto()
    """The broker never sees it, and nobody answers."""
    MUTED_AFTER = auto()
    """The broker does as it is told, and nobody answers."""


@dataclass
class Fault:
    """What happens to the next requests of a kind."""

    kind: type[Request[Any]]
    what: What
    code: int = 0
    times: int = 1
    skip: int = 0
    hits: int = 0
    happened: threading.Event = field(default_factory=threading.Event)
    """Set once it has happened to one of them; what the broker is to do before, is done."""


@dataclass(eq=False)
class _Wire:
    """A client's connection."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    answers: dict[int, tuple[Fault, bytes]] = field(default_factory=dict)
    due: deque[bytes] = field(default_factory=deque)
    """For each request that has no answer yet, the answer if it is a refusal; the broker's have nothing here."""

    def reset(self) -> None:
        for writer in (self.client, self.broker):
            writer.transport.abort()

    def ask(self, frame: bytes) -> None:
        """Let the broker have a request."""
        self.due.append(b"")
        self.broker.write(_LENGTH.pack(len(frame)) + frame)

    def refuse(self, refusal: bytes) -> None:
        """Answer in the broker's place, once it has answered what came before."""
        self.due.append(refusal)
        self._refuse_what_is_next()

    def answered(self, answer: bytes) -> None:
        """Take note that the broker has answered; pass *answer* on, if there is something of it."""
        self.due.popleft()
        self.client.write(answer)
        self._refuse_what_is_next()

    def _refuse_what_is_next(self) -> None:
        while self.due and self.due[0]:
            self.client.write(self.due.popleft())

    async def wait_closed(self) -> None:
        for writer in (self.client, self.broker):
            with suppress(OSError):
                await writer.wait_closed()


class Proxy:
    """Stands before one broker, whose `advertised.listeners` has its port."""

    def __init__(self, port: int, broker_port: int) -> None:
        self.port = port
        self.faults: list[Fault] = []
        self.seen: list[type[Request[Any]]] = []
        """The kinds of requests since the last `clear`, in order."""
        self._broker_port = broker_port
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = threading.Event()
        self._ended = asyncio.Event()
        self._serving: set[asyncio.Task[Any]] = set()
        self._wires: set[_Wire] = set()

    def __enter__(self) -> Self:
        """Serve, on a thread of its own: the broker is asked through here while it starts, too."""
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._main())

    async def _main(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._started.set()
        await self._ended.wait()
        server.close()
        self._reset()
        while self._serving:
            await asyncio.wait(self._serving)

    def add(
        self, kind: type[Request[Any]], what: What, code: int = 0, *, times: int = 1, skip: int = 0
    ) -> Fault:
        """Let *what* happen to the next requests of *kind*, but for the first *skip*."""
        fault = Fault(kind, what, code, times, skip)
        self.faults.append(fault)
        return fault

    def clear(self) -> None:
        """Let nothing happen any more, and forget what was seen."""
        self.faults.clear()
        self.seen.clear()

    def reset(self) -> None:
        """Break all connections."""
        self._loop.call_soon_threadsafe(self._reset)

    def _reset(self) -> None:
        for wire in tuple(self._wires):
            wire.reset()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
        except OSError:
            writer.transport.abort()
            return
        wire = _Wire(writer, broker_writer)
        self._wires.add(wire)
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        tasks = [
            asyncio.create_task(self._requests(reader, wire)),
            asyncio.create_task(self._answers(broker_reader, wire)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._wires.discard(wire)
        wire.reset()
        await wire.wait_closed()

    async def _requests(self, reader: asyncio.StreamReader, wire: _Wire) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(reader)
                fault = self._fault(frame)
                if fault is None:
                    wire.ask(frame)
                elif fault.what in {What.REFUSED_AFTER, What.RESET_AFTER, What.MUTED_AFTER}:
                    wire.answers[_START.unpack_from(frame)[2]] = fault, frame
                    wire.ask(frame)
                else:
                    fault.happened.set()
                    if fault.what is What.RESET:
                        return wire.reset()
                    if fault.what is What.REFUSED:
                        wire.refuse(_refusal(frame, fault.code))

    async def _answers(self, reader: asyncio.StreamReader, wire: _Wire) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(reader)
                fault, request = wire.answers.pop(_LENGTH.unpack_from(frame)[0], (None, b""))
                if fault is None:
                    wire.answered(_LENGTH.pack(len(frame)) + frame)
                    continue
                fault.happened.set()
                if fault.what is What.RESET_AFTER:
                    return wire.reset()
                wire.answered(_refusal(request, fault.code) if fault.what is What.REFUSED_AFTER else b"")

    def _fault(self, frame: bytes) -> Fault | None:
        kind = REQUESTS.get(_START.unpack_from(frame)[0])
        if kind is None:
            return None
        self.seen.append(kind)
        for fault in self.faults:
            if fault.kind is kind and fault.hits < fault.times + fault.skip:
                fault.hits += 1
                return fault if fault.hits > fault.skip else None
        return None


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)


def _refusal(frame: bytes, code: int) -> bytes:
    header, start = decode_request(frame, REQUESTS)
    request, _ = decode_start(REQUESTS[header.api_key], header.api_version, frame, start)
    return bytes(encode_response(_answer(request, code), header.api_version, header.correlation_id))


def _answer(request: Message, code: int) -> Message:
    match request:
        case FindCoordinatorRequest():
            nobody = [
                Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code)
                for key in request.coordinator_keys
            ]
            return FindCoordinatorResponse(coordinators=nobody)
        case InitProducerIdRequest():
            return InitProducerIdResponse(error_code=code, producer_epoch=-1)
        case AddPartitionsToTxnRequest():
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.v3_and_below_topics
                ]
            )
        case AddOffsetsToTxnRequest():
            return AddOffsetsToTxnResponse(error_code=code)
        case TxnOffsetCommitRequest():
            return TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            TxnOffsetCommitResponsePartition(
                                partition_index=each.partition_index, error_code=code
                            )
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        case EndTxnRequest():
            return EndTxnResponse(error_code=code)
        case ProduceRequest():
            return ProduceResponse(
                responses=[
                    TopicProduceResponse(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partition_responses=[
                            PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)
                            for each in topic.partition_data
                        ],
                    )
                    for topic in request.topic_data
                ]
            )
    raise AssertionError(f"no refusal for {type(request).__name__}")
