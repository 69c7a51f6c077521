"""Every option of the installed librdkafka, aiokafka and kafka-python has a place in the tables of names."""

from __future__ import annotations

import ctypes
import inspect
import warnings
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest

from aioproducer.config.mapping import read_mapping
from aioproducer.config.options import KINDS


def librdkafka_names(folder: Path) -> set[str]:
    """Return the options that librdkafka documents; it prints them as a table."""
    libraries = sorted(
        (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
    )
    if not libraries:
        pytest.skip("librdkafka is not a shared library of the wheel")
    library, libc = ctypes.CDLL(str(libraries[0])), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    page = folder / "options"
    file = libc.fopen(str(page).encode(), b"w")
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = [line.split("|") for line in page.read_text().splitlines()]
    return {row[0].strip() for row in rows if len(row) > 1 and row[1].strip() in {"*", "P", "C"}}


def unknown(names: set[str]) -> list[str]:
    return [
        message
        for message in read_mapping(dict.fromkeys(names), KINDS).mistakes
        if "given twice" not in message
    ]


def test_names_of_librdkafka_are_known(tmp_path: Path) -> None:
    names = librdkafka_names(tmp_path)
    assert len(names) > 150
    assert unknown(names) == []


def test_names_of_aiokafka_are_known() -> None:
    assert unknown(set(inspect.signature(aiokafka.AIOKafkaProducer).parameters)) == []


def test_names_of_kafka_python_are_known() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a deprecated way
        import kafka  # noqa: PLC0415
    assert unknown(set(kafka.KafkaProducer.DEFAULT_CONFIG)) == []


def test_misspelt_name_is_not_known() -> None:
    assert unknown({"lingr.ms"}) != []
