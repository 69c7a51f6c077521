from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from pydantic import BaseModel

from aioproducer import Producer, SerializationError
from aioproducer.contrib.json import json_serializer, pydantic_serializer
from aioproducer.testing import ThreadedCluster
from tests.cases import for_each

SAMPLES: list[tuple[Any, bytes | None]] = [
    (None, None),
    ({"a": 1, "ü": [True, None, "€", 0.5]}, '{"a":1,"ü":[true,null,"€",0.5]}'.encode()),
    ([], b"[]"),
    ("text", b'"text"'),
    (0, b"0"),
    ((1, 2), b"[1,2]"),
]


class Order(BaseModel):
    number: int
    note: str | None = None


@for_each(("value", "expected"), SAMPLES)
def test_json_is_compact_and_utf8(value: Any, expected: bytes | None) -> None:
    assert json_serializer(value) == expected


def test_json_falls_back_to_the_standard_library() -> None:
    program = f"""
import sys; sys.modules["orjson"] = None
from aioproducer.contrib.json import json_serializer
for value, expected in {SAMPLES!r}:
    assert json_serializer(value) == expected, value
try:
    json_serializer({{"x": float("nan")}})
except ValueError:
    print("refused")
"""
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert output.stdout.decode().split() == ["refused"]


@pytest.mark.parametrize("value", [object(), b"bytes", {1: "a number as a key"}])
def test_serializer_raises_for_values_without_json_form(value: Any) -> None:
    with pytest.raises(TypeError):
        json_serializer(value)


def test_serializer_never_writes_nan() -> None:
    assert json_serializer(math.nan) == b"null"  # with orjson; without, it is refused


def test_orjson_and_json_differ_as_documented() -> None:
    program = """
import sys
if sys.argv[1:]: sys.modules["orjson"] = None
import datetime
from aioproducer.contrib.json import json_serializer
for value in (float("inf"), {1: 2}, 2**64, datetime.date(2026, 1, 2)):
    try:
        print(json_serializer(value).decode())
    except (TypeError, ValueError) as error:
        print("refused")
"""
    both = [
        subprocess.run([sys.executable, "-c", program, *without], check=True, capture_output=True, timeout=60)
        for without in ([], ["without"])
    ]
    assert [each.stdout.decode().split() for each in both] == [
        ["null", "refused", "refused", '"2026-01-02"'],
        ["refused", '{"1":2}', "18446744073709551616", "refused"],
    ]


def test_model_is_serialized_as_by_pydantic() -> None:
    assert pydantic_serializer(Order(number=7)) == b'{"number":7,"note":null}'
    assert pydantic_serializer(None) is None


@pytest.mark.parametrize(("value", "told"), [({"number": 7}, "dict"), (Order, "the class Order")])
def test_pydantic_serializer_refuses_other_types(value: Any, told: str) -> None:
    with pytest.raises(TypeError, match=f"^pydantic_serializer takes a pydantic model or None, not {told}$"):
        pydantic_serializer(value)


async def test_producer_sends_serialized_values(kafka_cluster: ThreadedCluster) -> None:
    async with Producer(
        kafka_cluster.bootstrap_servers, key_serializer=json_serializer, value_serializer=pydantic_serializer
    ) as producer:
        await producer.send("orders", Order(number=7, note="ü"), key=[1])
        with pytest.raises(SerializationError, match="value of a record for 'orders'"):
            await producer.send("orders", {"number": 7})
    [record] = kafka_cluster.records("orders", 0)
    assert (record.key, record.value) == (b"[1]", '{"number":7,"note":"ü"}'.encode())
