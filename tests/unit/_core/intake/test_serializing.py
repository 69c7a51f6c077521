from __future__ import annotations

import asyncio
import inspect
import json
from functools import partial
from typing import Any

import pytest

from aioproducer._core.intake.serializing import (
    InContext,
    Serialization,
    SerializerAwaits,
    in_context,
    is_async,
    serialized,
)
from aioproducer.errors import SerializationError, SerializerUnavailable
from aioproducer.serializers import HeaderList, string_serializer
from tests.cases import for_each


class Marks:
    """Serializer that writes its arguments and adds a header."""

    def __init__(self, header: tuple[Any, Any]) -> None:
        self.header = header

    def serialize(self, topic: str, headers: HeaderList, value: Any) -> bytes:
        written = f"{topic} {[name for name, _ in headers]} {value}".encode()
        headers.append(self.header)
        return written


def test_bytes_are_kept_without_a_serializer() -> None:
    assert serialized("value", None, "orders", bytearray(b"v")) == b"v"


@pytest.mark.parametrize(("position", "record"), [(None, "a record for"), (17, "record 17 for")])
def test_exception_is_reported_with_field_record_and_topic(position: int | None, record: str) -> None:
    with pytest.raises(SerializationError) as raised:
        serialized("key", string_serializer, "orders", 5, position)
    assert str(raised.value) == (
        f"the key of {record} 'orders' (int) could not be serialized: TypeError: "
        "string_serializer takes str or None, not int"
    )
    assert isinstance(raised.value.__cause__, TypeError)


def test_returned_text_is_reported_with_a_hint() -> None:
    dumps: Any = json.dumps
    with pytest.raises(
        SerializationError, match=r"the result of value_serializer must .*, not str; add \.encode\(\)$"
    ):
        serialized("value", dumps, "orders", {})


@for_each(
    ("error", "retriable"),
    [
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (FileNotFoundError(), False),
        (KeyError(), False),
    ],
)
def test_serializer_without_its_server_is_retriable(error: Exception, retriable: bool) -> None:
    def ask(value: object) -> bytes:
        raise error

    with pytest.raises(SerializationError) as raised:
        serialized("value", ask, "orders", "v")
    assert raised.value.retriable is retriable
    assert isinstance(raised.value, SerializerUnavailable) is retriable


def test_plain_serializers_do_not_see_the_topic() -> None:
    assert in_context(None, None) is None
    assert in_context(string_serializer, string_serializer) is None


def test_serializers_see_topic_headers_and_value_key_first() -> None:
    serialize = in_context(Marks(("k", b"1")), Marks(("v", b"2")))
    assert serialize is not None
    given = (("own", b"0"),)
    key, value, headers = serialize("orders", given, "key", "value")
    assert key == b"orders ['own'] key"
    assert value == b"orders ['own', 'k'] value"
    assert headers == (("own", b"0"), ("k", b"1"), ("v", b"2"))
    assert given == (("own", b"0"),)


def test_other_serializer_may_be_a_callable_or_none() -> None:
    for key_serializer, key in ((string_serializer, "k"), (None, b"k")):
        serialize = in_context(key_serializer, Marks(("v", b"2")))
        assert serialize is not None
        assert serialize("orders", (), key, "v") == (b"k", b"orders [] v", (("v", b"2"),))


def test_unchanged_headers_stay_the_same_object() -> None:
    class Plain:
        def serialize(self, topic: str, headers: HeaderList, value: Any) -> bytes:
            return b"v"

    serialize, headers = in_context(None, Plain()), (("own", b"0"),)
    assert serialize is not None
    assert serialize("orders", headers, None, "v").headers is headers


@pytest.mark.parametrize("header", [("name", "text"), (5, b"v"), ("\ud800", b"v")])
def test_headers_that_will_not_do_fail_the_record(header: tuple[Any, Any]) -> None:
    serialize = in_context(None, Marks(header))
    assert serialize is not None
    with pytest.raises(
        SerializationError, match=r"^record 3 for 'orders': the headers changed by serializers"
    ) as raised:
        serialize("orders", (), None, "v", 3)
    assert isinstance(raised.value.__cause__, TypeError | ValueError)


def test_headers_that_cannot_even_be_compared_fail_the_record() -> None:
    class Array:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value of an array is ambiguous")

        __hash__ = None  # type: ignore[assignment]

    class Replaces:
        def serialize(self, topic: str, headers: HeaderList, value: Any) -> bytes:
            headers[0] = ("own", Array())  # type: ignore[assignment]
            return b"v"

    serialize = in_context(None, Replaces())
    assert serialize is not None
    with pytest.raises(SerializationError, match=r"^a record for 'orders': the truth value"):
        serialize("orders", (("own", b"0"),), None, "v")


def test_exception_of_a_topic_serializer_is_reported() -> None:
    class Broken:
        def serialize(self, topic: str, headers: HeaderList, value: Any) -> bytes:
            raise LookupError("no schema")

    serialize = in_context(None, Broken())
    assert serialize is not None
    with pytest.raises(
        SerializationError, match=r"the value of record 3 for 'orders' .*: LookupError: no schema"
    ):
        serialize("orders", (), None, "v", 3)


async def encode(value: str) -> bytes:
    await asyncio.sleep(0)
    return value.encode()


class Encoding:
    async def __call__(self, value: str) -> bytes:
        return value.encode()


class Later:
    async def serialize(self, topic: str, headers: HeaderList, value: str) -> bytes:
        headers.append(("for", topic.encode()))
        return value.encode()


@for_each(
    ("serializer", "expected"),
    [
        (encode, True),
        (Encoding(), True),
        (Later(), True),
        (partial(encode), True),
        (string_serializer, False),
        (Marks(("h", b"")), False),
        (None, False),
    ],
)
def test_is_async_recognizes_coroutine_functions(serializer: object, expected: bool) -> None:
    assert is_async(serializer) is expected


def test_names_of_serializers_are_for_messages() -> None:
    both = InContext(partial(encode), Later())
    assert both.names == {"key": "key_serializer encode", "value": "value_serializer Later"}
    assert both.awaits == "key_serializer encode"
    assert InContext(string_serializer, Later()).awaits == "value_serializer Later"
    assert InContext(string_serializer, None).awaits is None


def test_awaitable_result_is_raised_and_can_be_discarded() -> None:
    with pytest.raises(SerializerAwaits) as raised:
        serialized("value", encode, "orders", "v")
    assert raised.value.field == "value"
    raised.value.discard()
    assert inspect.getcoroutinestate(raised.value.awaitable) == "CORO_CLOSED"  # type: ignore[arg-type]


async def test_discard_cancels_a_task() -> None:
    task = asyncio.ensure_future(encode("v"))
    SerializerAwaits("value", task).discard()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_serialization_awaits_key_and_value() -> None:
    record = ("orders", (("own", b"1"),), "k", "v")
    contents = await Serialization(InContext(encode, Later()), record).contents()
    assert contents == (b"k", b"v", (("own", b"1"), ("for", b"orders")))


@pytest.mark.parametrize("field", ["key", "value"])
async def test_serialization_continues_from_an_awaitable(field: str) -> None:
    calls: list[str] = []

    def plain(value: str) -> Any:
        calls.append(value)
        return encode(value) if value == field else value.encode()

    class Plain:
        def serialize(self, topic: str, headers: HeaderList, value: str) -> Any:
            headers.append((value, None))
            return plain(value)

    for serializer, headers in ((plain, ()), (Plain(), (("key", None), ("value", None)))):
        both = InContext(serializer, serializer)
        with pytest.raises(SerializerAwaits) as raised:
            both("orders", (), "key", "value")
        serialization = Serialization(both, ("orders", (), "key", "value"), begun=raised.value)
        assert await serialization.contents() == (b"key", b"value", headers)
        assert calls == ["key", "value"]
        calls.clear()


async def test_late_serializer_is_named_with_its_record() -> None:
    async def hang(value: str) -> bytes:
        await asyncio.Event().wait()
        return b""

    serialization = Serialization(InContext(encode, hang), ("orders", (), "k", "v"), 17)
    task = asyncio.ensure_future(serialization.contents())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    assert str(serialization.late(1.5)) == (
        "the value of record 17 for 'orders' (str) could not be serialized:"
        f" value_serializer {hang.__qualname__} has not returned, and the call has waited 1.500 s;"
        " max_block_ms or the call's timeout_s ran out"
    )
