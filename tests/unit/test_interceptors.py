from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial

import pytest

from aioproducer._core.interceptor_chain import InterceptorChain
from aioproducer.errors import BufferFull, DeliveryTimeout, ProducerError
from aioproducer.interceptors import Interceptor
from aioproducer.types import Headers, ProducerRecord, RecordMetadata, TopicPartition

RECORD = ProducerRecord("orders", b"value", key=b"key")
PARTITION = TopicPartition("orders", 3)
METADATA = RecordMetadata("orders", 3, 42, 1_700_000_000_000, log_append_time=False)


class Appending:
    """Appends its mark to every value; has no other method."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        record.value += self.mark
        return record


class Broken:
    """Fails in every method, on_send only after it has changed the record."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        record.topic = "changed before the failure"
        raise KeyError("on_send")

    def on_acknowledgement(self, *heard: object) -> None:
        raise KeyError("on_acknowledgement")

    def close(self) -> None:
        raise KeyError("close")


class Listening:
    """Interceptor without on_send that stores the outcomes it receives."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
    ) -> None:
        self.heard.append((metadata, error, topic_partition))

    def close(self) -> None:
        self.heard.append("closed")


def test_empty_chain_is_falsy_and_passes_records_through() -> None:
    chain = InterceptorChain([])
    assert not chain
    assert chain.on_send(RECORD) is RECORD
    chain.on_acknowledgement(METADATA, None, PARTITION)
    chain.close()


def test_on_send_runs_in_order_with_the_previous_result() -> None:
    chain = InterceptorChain([Appending(b"-1"), Listening(), Appending(b"-2")])
    assert chain
    assert chain.on_send(RECORD) == replace(RECORD, value=b"value-1-2")


def test_record_of_the_caller_is_never_changed() -> None:
    InterceptorChain([Appending(b"!")]).on_send(RECORD)
    assert RECORD.value == b"value"


def test_interceptor_may_change_the_topic() -> None:
    class Elsewhere(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord("elsewhere", record.value, partition=7)

    assert InterceptorChain([Elsewhere()]).on_send(RECORD) == ProducerRecord(
        "elsewhere", b"value", partition=7
    )


def test_record_is_restored_after_an_interceptor_failed() -> None:
    chain = InterceptorChain([Appending(b"-1"), Broken(), Appending(b"-2")])
    assert chain.on_send(RECORD) == replace(RECORD, value=b"value-1-2")


def test_interceptor_that_returns_no_record_is_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Forgetful:
        def on_send(self, record: ProducerRecord) -> None:
            record.topic = "forgotten"

    assert InterceptorChain([Forgetful()]).on_send(RECORD) == RECORD
    assert "on_send returned NoneType instead of a ProducerRecord" in caplog.text


@pytest.mark.parametrize(("metadata", "error"), [(METADATA, None), (None, DeliveryTimeout("too late"))])
def test_interceptors_receive_outcomes_even_after_one_failed(
    metadata: RecordMetadata | None, error: ProducerError | None
) -> None:
    first, last = Listening(), Listening()
    InterceptorChain([first, Appending(b""), Broken(), last]).on_acknowledgement(metadata, error, PARTITION)
    assert first.heard == last.heard == [(metadata, error, PARTITION)]


def test_every_interceptor_is_closed_even_after_one_failed() -> None:
    first, last = Listening(), Listening()
    InterceptorChain([first, Appending(b""), Broken(), last]).close()
    assert first.heard == last.heard == ["closed"]


def test_failure_is_a_warning_once_and_debug_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    chain = InterceptorChain([Broken(), Broken()])
    for _ in range(100):
        chain.on_send(RECORD)
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING] + [logging.DEBUG] * 199
    first = caplog.records[0]
    assert first.getMessage() == "interceptor.failed interceptor=Broken method=on_send error=KeyError"
    assert first.exc_info is not None
    assert isinstance(first.exc_info[1], KeyError)
    assert first.exc_info[2] is not None


def test_failures_of_each_class_and_method_are_warnings(caplog: pytest.LogCaptureFixture) -> None:
    class AlsoBroken(Broken):
        """Another class that fails."""

    chain = InterceptorChain([Broken(), AlsoBroken()])
    chain.on_send(RECORD)
    chain.on_acknowledgement(METADATA, None, PARTITION)
    chain.close()
    assert len(caplog.records) == 6
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_cancellation_is_not_an_interceptors_failure() -> None:
    class Cancelling:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        InterceptorChain([Cancelling()]).on_send(RECORD)


def test_subclass_of_interceptor_inherits_unused_methods() -> None:
    class Nothing(Interceptor):
        """Overrides no method."""

    chain = InterceptorChain([Nothing()])
    assert chain.on_send(RECORD) == RECORD
    chain.on_acknowledgement(METADATA, None, PARTITION)
    chain.close()


class WithHeaders:
    """Asks for the headers, by a fourth parameter."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        headers: Headers = (),
    ) -> None:
        self.heard.append(headers)


class WithAny:
    """Takes as many arguments as come."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_acknowledgement(self, *arguments: object) -> None:
        self.heard.append(arguments)


def test_headers_are_passed_to_interceptors_that_accept_them() -> None:
    asking, listening, taking = WithHeaders(), Listening(), WithAny()
    headers = (("trace", b"1"),)
    chain = InterceptorChain([asking, listening, taking])
    chain.on_acknowledgement(METADATA, None, PARTITION, headers)
    assert asking.heard == [headers]
    assert listening.heard == taking.heard == [(METADATA, None, PARTITION)]


def test_interceptor_without_a_signature_gets_no_headers() -> None:
    class Unsigned:
        on_acknowledgement = staticmethod(print)

    class Odd(WithAny):
        """Its method lies about itself."""

        def __init__(self) -> None:
            super().__init__()
            self.on_acknowledgement = partial(self.on_acknowledgement)  # type: ignore[method-assign]
            self.on_acknowledgement.__signature__ = "none"  # type: ignore[attr-defined]

    odd = Odd()
    InterceptorChain([Unsigned(), odd]).on_acknowledgement(METADATA, None, PARTITION, (("trace", b"1"),))
    assert odd.heard == [(METADATA, None, PARTITION)]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TypeError("value must be bytes"), "not appended: value must be bytes"),
        (asyncio.CancelledError(), "not appended: its call was cancelled"),
    ],
)
def test_foreign_error_before_append_becomes_a_producer_error(error: BaseException, told: str) -> None:
    spy, headers = Listening(), (("trace", b"1"),)
    InterceptorChain([spy]).on_send_error("orders", None, headers, error)
    [ended] = spy.heard
    assert isinstance(ended, tuple)
    metadata, heard, where = ended
    assert metadata is None
    assert type(heard) is ProducerError
    assert str(heard) == told
    assert heard.__cause__ is error
    assert where == TopicPartition("orders", -1)


def test_producer_error_before_append_is_reported_unchanged() -> None:
    spy, error = Listening(), DeliveryTimeout("too late")
    InterceptorChain([spy]).on_send_error("orders", 3, (), error)
    assert spy.heard == [(None, error, PARTITION)]


def test_interceptors_see_headers_as_pairs() -> None:
    class Adds:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            record.headers = [*record.headers, ("b", b"2")]
            return record

    record = ProducerRecord("orders", headers={"a": b"1"})
    assert InterceptorChain([Adds()]).on_send(record).headers == [("a", b"1"), ("b", b"2")]
    assert record.headers == {"a": b"1"}


class WithLatency:
    """Asks for the latency, by a fifth parameter."""

    def __init__(self) -> None:
        self.heard: list[float | None] = []

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        headers: Headers,
        latency_s: float | None,
        more: str = "",
    ) -> None:
        assert more == ""
        self.heard.append(latency_s)


def test_latency_is_passed_to_interceptors_that_accept_it() -> None:
    asking, with_headers, listening = WithLatency(), WithHeaders(), Listening()
    chain = InterceptorChain([asking, with_headers, listening])
    chain.on_acknowledgement(METADATA, None, PARTITION, (), 0.25)
    assert (asking.heard, with_headers.heard) == ([0.25], [()])
    assert listening.heard == [(METADATA, None, PARTITION)]
    chain.on_send_error("orders", 0, (), BufferFull("x"))
    assert asking.heard == [0.25, None]
