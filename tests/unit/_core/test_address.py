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
def test_address_is_formatted_as_in_kafkas_logs(address: Address, text: str) -> None:
    assert str(address) == text


def test_resolved_address_keeps_its_host_name() -> None:
    resolved = ResolvedAddress("10.0.0.1", 9092, "kafka.example")
    assert (*resolved,) == ("10.0.0.1", 9092)
    assert resolved.name == "kafka.example"
    assert resolved == Address("10.0.0.1", 9092)


def test_unresolved_address_is_its_own_name() -> None:
    assert Address("10.0.0.1", 9092).name == "10.0.0.1"
