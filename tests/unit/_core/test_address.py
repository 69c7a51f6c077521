from __future__ import annotations

from aioproducer._core.address import Address, ResolvedAddress
from tests.cases import for_each


@for_each(
    ("address", "text"),
    [
        (Address("kafka.example", 9092), "kafka.example:9092"),
        (Address("::1", 9092), "[::1]:9092"),
        (ResolvedAddress("10.0.0.1", 9092, "kafka.example"), "kafka.example/10.0.0.1:9092"),
        (ResolvedAddress("::1", 9092, "kafka.example"), "kafka.example/[::1]:9092"),
    ],
)
def test_an_address_is_written_as_kafka_does(address: Address, text: str) -> None:
    assert str(address) == text


def test_a_resolved_address_is_dialled_in_digits_and_keeps_the_name_that_it_was_found_by() -> None:
    resolved = ResolvedAddress("10.0.0.1", 9092, "kafka.example")
    assert (*resolved,) == ("10.0.0.1", 9092)
    assert resolved.name == "kafka.example"
    assert resolved == Address("10.0.0.1", 9092)


def test_an_address_that_was_not_looked_up_is_named_as_it_was_given() -> None:
    assert Address("10.0.0.1", 9092).name == "10.0.0.1"
