"""Every option of Kafka's newest clients has a place in the tables of names."""

from __future__ import annotations

import pytest

from aioproducer.config.names import OTHER_CLIENTS, REFUSED, WITHOUT_EFFECT, is_of_other_clients
from aioproducer.config.options import KINDS
from tests.kafka.apache.client_names import client_names

APPLIED = {name.replace("_", ".") for name in KINDS} | {"partitioner.class"}
KNOWN_TO_PRODUCERS = APPLIED | WITHOUT_EFFECT | REFUSED.keys()


def test_producer_names_of_newest_kafka_are_known() -> None:
    names = client_names("producer")
    assert len(names) > 90
    assert names - KNOWN_TO_PRODUCERS == set()


def test_options_without_effect_are_names_of_kafka() -> None:
    assert (WITHOUT_EFFECT | REFUSED.keys()) - client_names("producer") == set()


@pytest.mark.parametrize("client", ["consumer", "admin"])
def test_names_of_other_clients_are_known(client: str) -> None:
    names = client_names(client)
    assert len(names) > 90
    assert {name for name in names if not is_of_other_clients(name)} - KNOWN_TO_PRODUCERS == set()


def test_producer_names_belong_to_no_other_client() -> None:
    assert OTHER_CLIENTS & client_names("producer") == set()
