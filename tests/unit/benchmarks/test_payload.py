from __future__ import annotations

import json
import random
import zlib

import pytest

from benchmarks.payload import json_value, window_of
from benchmarks.settings import Settings, Work


def settings(**changes: object) -> Settings:
    return Settings(**({"work": Work.FIRE, "value_bytes": 4096} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("json_like", [False, True])
def test_values_are_distinct_and_of_the_size_asked_for(json_like: bool) -> None:
    values = window_of(settings(json_like=json_like)).values
    assert len(set(values)) == len(values) == 2048
    assert {len(value) for value in values} == {4096}


def test_every_process_sends_the_same() -> None:
    rich = settings(value_bytes=100_000, json_like=True, keys=True, headers=True)
    assert window_of(rich) == window_of(rich)


def test_keys_and_headers_exist_only_on_request() -> None:
    plain = window_of(settings())
    assert plain.keys is None
    assert plain.headers is None
    rich = window_of(settings(keys=True, headers=True))
    assert rich.keys is not None
    assert rich.headers is not None
    assert {len(key) for key in rich.keys} == {16}
    assert {len(headers) for headers in rich.headers} == {2}
    assert len(rich.keys) == len(rich.headers) == len(rich)


@pytest.mark.parametrize("size", [1024, 10_240])
def test_json_value_is_valid_and_compressible(size: int) -> None:
    value = json_value(random.Random(0), 7, size)
    events = json.loads(value)
    assert events[0]["number"] == "7-0"
    assert len(value.rstrip()) > size - 300
    assert 2 < size / len(zlib.compress(value)) < 20


def test_json_value_smaller_than_an_event_is_cut() -> None:
    assert json_value(random.Random(0), 7, 40).startswith(b'[{"number":"7-0"')
