"""The page about moving from other clients: each row of its tables holds for those clients and for this one."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path

import aiokafka
import aiokafka.errors
import confluent_kafka
import pytest
from confluent_kafka.aio import AIOProducer

from aioproducer import ConfigError, Producer, ProducerError, ProducerOptions, errors
from aioproducer.compat.aiokafka.translation import translated

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in an old way
    import kafka
    import kafka.errors

PAGE = (Path(__file__).parents[1] / "docs/from-aiokafka.md").read_text()
OPTIONS = {"bootstrap_servers", *ProducerOptions.__annotations__}
THEIR_OPTIONS = set(inspect.signature(aiokafka.AIOKafkaProducer).parameters)
NOTHING = "\N{EN DASH}"
CALL = re.compile(r"`(await )?(\w+)\(")


def table(name: str) -> list[list[str]]:
    """Return the cells of a table of the page, row by row."""
    text = PAGE.split(f"<!-- {name}: begin -->")[1].split(f"<!-- {name}: end -->")[0]
    _, _, *rows = text.strip().splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def quoted(cell: str) -> list[str]:
    names = re.findall(r"`([\w.]+)`", cell)
    assert bool(names) != (cell == NOTHING), cell
    return names


def known_to_librdkafka(name: str) -> bool:
    with pytest.raises(confluent_kafka.KafkaException) as caught:  # of the second at the latest
        confluent_kafka.Producer({name: "?", "no.such.option": "?"})
    return f'No such configuration property: "{name}"' not in str(caught.value)


@pytest.mark.parametrize(("here", "in_aiokafka", "in_confluent", "in_kafka_python"), table("options"))
def test_page_names_existing_options(
    here: str, in_aiokafka: str, in_confluent: str, in_kafka_python: str
) -> None:
    assert set(quoted(here)) <= OPTIONS
    assert set(quoted(in_aiokafka)) <= THEIR_OPTIONS
    assert all(map(known_to_librdkafka, quoted(in_confluent)))
    assert set(quoted(in_kafka_python)) <= kafka.KafkaProducer.DEFAULT_CONFIG.keys()


def test_page_check_detects_an_unknown_option() -> None:
    assert not known_to_librdkafka("linger")
    assert known_to_librdkafka("linger.ms")


@pytest.mark.parametrize(("here", "column"), [(row[0], cell) for row in table("options") for cell in row[1:]])
def test_options_of_other_clients_are_accepted_or_explained(here: str, column: str) -> None:
    for theirs in quoted(column):
        ours = theirs.replace(".", "_")
        if ours not in OPTIONS:
            with pytest.raises(
                ConfigError, match=f"unknown option '{ours}'; (Kafka's name for it is|give) "
            ) as caught:
                Producer("localhost:9092", **{ours: 1})  # type: ignore[arg-type]
            assert any(name in str(caught.value) for name in quoted(here))


def test_page_lists_options_shared_with_other_clients() -> None:
    listed = {name for here, *_ in table("options") for name in quoted(here)}
    assert listed >= THEIR_OPTIONS & OPTIONS
    assert kafka.KafkaProducer.DEFAULT_CONFIG.keys() & OPTIONS <= listed
    assert {name for name in OPTIONS if known_to_librdkafka(name.replace("_", "."))} <= listed


def test_page_lists_every_option_of_aiokafka() -> None:
    section = PAGE.split("### Options\n")[1].split("### ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(THEIR_OPTIONS)


def check_calls(cell: str, kind: type) -> None:
    calls = CALL.findall(cell)
    assert bool(calls) != (cell == NOTHING), cell
    for awaited, name in calls:
        if name != "get":  # of a Future
            assert inspect.iscoroutinefunction(getattr(kind, name)) == bool(awaited), name


@pytest.mark.parametrize("row", table("calls"), ids=lambda row: row[0])
def test_page_names_existing_calls(row: list[str]) -> None:
    kinds = (Producer, aiokafka.AIOKafkaProducer, confluent_kafka.Producer, AIOProducer, kafka.KafkaProducer)
    for cell, kind in zip(row[1:], kinds, strict=True):
        check_calls(cell, kind)


@pytest.mark.parametrize(("here", "in_aiokafka", "in_confluent", "in_kafka_python"), table("errors"))
def test_page_names_existing_errors(
    here: str, in_aiokafka: str, in_confluent: str, in_kafka_python: str
) -> None:
    (name,) = quoted(here)
    ours: type[ProducerError] = getattr(errors, name)
    for module, cell in (
        (aiokafka.errors, in_aiokafka),
        (confluent_kafka.KafkaError, in_confluent),
        (kafka.errors, in_kafka_python),
    ):
        assert all(hasattr(module, each) for each in quoted(cell))
    if in_aiokafka != NOTHING:
        assert type(translated(ours("why"))).__name__ in quoted(in_aiokafka)
