from __future__ import annotations

from dataclasses import fields

import pytest

from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.config.names import KAFKA_NAMES, REFUSED, WITHOUT_EFFECT
from aioproducer.config.options import DEFAULTS, KINDS, Options
from aioproducer.config.security_options import SecurityOptionsGiven

OURS = {"key_serializer", "value_serializer", "partitioner", "interceptors"}


def test_the_keyword_arguments_are_the_options_in_the_same_order() -> None:
    security = [*SecurityOptionsGiven.__annotations__]
    others = [name for name in ProducerOptions.__annotations__ if name not in security]
    assert [*KINDS] == ["bootstrap_servers", *others, *security]
    assert {each.name for each in fields(ProducerConfig)} == KINDS.keys()
    assert not ProducerOptions.__required_keys__


@pytest.mark.parametrize("name", [name for name in KINDS if name != "bootstrap_servers"])
def test_every_default_is_a_value_that_may_be_given(name: str) -> None:
    KINDS[name].check(DEFAULTS[name])


def test_every_option_has_a_meaning_that_fits_on_a_line() -> None:
    for each in fields(Options):
        assert each.metadata["meaning"].endswith((".", "…")), each.name
        assert "\n" not in each.metadata["meaning"]


def test_numbers_say_what_they_count_as_their_name_does() -> None:
    for name, kind in KINDS.items():
        assert (kind.unit == "ms") == name.endswith("_ms"), name
        if name.endswith("_bytes"):
            assert kind.unit == "bytes", name


def test_an_option_that_is_applied_is_of_no_other_kind() -> None:
    dotted = {name.replace("_", ".") for name in KINDS}
    assert not dotted & (WITHOUT_EFFECT | REFUSED.keys() | KAFKA_NAMES.keys())


def test_other_clients_names_lead_to_options_that_exist() -> None:
    for names in KAFKA_NAMES.values():
        for name in names.replace(" or ", ", ").split(", "):
            assert name.replace(".", "_") in KINDS
