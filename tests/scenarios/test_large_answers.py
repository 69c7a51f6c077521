"""Produce responses of megabytes: decoded in a worker thread, and settled in their order."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from aioproducer._core.protocol.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
)
from aioproducer._core.protocol.schema import decode_response
from aioproducer._core.sender import requests
from aioproducer.errors import InvalidRecord
from tests.scenarios.rig import TOPIC, producing, scenario, values
from tests.scenarios.test_answers_out_of_range import changed

RECORDS = 400
MESSAGE = "a record that the broker refuses " * 10


def refuse_all(answer: ProduceResponse) -> None:
    (partition,) = answer.responses[0].partition_responses
    partition.error_code, partition.base_offset = InvalidRecord.code, -1
    partition.record_errors = [
        BatchIndexAndErrorMessage(batch_index=each, batch_index_error_message=MESSAGE)
        for each in range(RECORDS)
    ]


@scenario
async def test_large_produce_answer_leaves_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return decode_response(*arguments)

    monkeypatch.setattr(requests, "decode_response", noted)
    async with producing(linger_ms=10) as (producer, opened):
        await producer.send(TOPIC, b"first")
        opened.on("produce").rewrite(changed(ProduceResponse, refuse_all))
        refused = [await producer.enqueue(TOPIC, b"refused") for _ in range(RECORDS)]
        await producer.flush()
        behind = await producer.send(TOPIC, b"behind")
        assert {type(each.exception()) for each in refused} == {InvalidRecord}
        assert behind.offset > 0
    assert values(opened, 0)[-1] == b"behind"
    assert threads
    assert threading.get_ident() not in threads


def add_unasked(answer: ProduceResponse) -> None:
    answer.responses[0].partition_responses += [
        PartitionProduceResponse(index=each, error_code=0, base_offset=0) for each in range(10, 5_000)
    ]


@scenario
async def test_unasked_partitions_are_listed_in_a_short_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "aioproducer")
    async with producing() as (producer, opened):
        opened.on("produce").rewrite(changed(ProduceResponse, add_unasked))
        await producer.send(TOPIC, b"v")
        await producer.send(TOPIC, b"behind")
    lines = [each for each in caplog.messages if "not requested" in each]
    assert lines
    assert max(map(len, lines)) < 2_000
