from __future__ import annotations

import ssl
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.security.certificate import MOST_NAMES, read_certificate
from tests.unit._core.security.certificates import Authority

FROM, UNTIL = datetime(2049, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2051, 1, 2, 3, 4, 5, tzinfo=UTC)
AUTHORITY = Authority("Lab, Ü")
DER = ssl.PEM_cert_to_DER_cert(
    AUTHORITY.issue(
        "a.example", "*.b", "10.0.0.1", "::1", common_name="bob", not_before=FROM, not_after=UNTIL
    ).chain
)


def test_it_says_whose_it_is_from_whom_for_what_and_how_long() -> None:
    certificate = read_certificate(DER)
    assert certificate.subject == "CN=bob, O=lab"
    assert certificate.issuer == "CN=Lab, Ü"
    assert (certificate.not_before, certificate.not_after) == (
        FROM,
        UNTIL,
    )  # as UTCTime, and as GeneralizedTime
    assert certificate.names == ("a.example", "*.b", "10.0.0.1", "::1")


def test_names_may_be_missing() -> None:
    assert read_certificate(ssl.PEM_cert_to_DER_cert(AUTHORITY.issue().chain)).names == ()


def test_of_many_names_some_are_enough() -> None:
    many = AUTHORITY.issue(*[f"b{number}.example" for number in range(MOST_NAMES + 1)])
    assert len(read_certificate(ssl.PEM_cert_to_DER_cert(many.chain)).names) == MOST_NAMES


@pytest.mark.parametrize(
    "der", [b"", b"0", b"0\x80", b"0\x85\x01\x01\x01\x01\x01", b"0\x03abc", b"hello", DER[:-1]], ids=range(7)
)
def test_what_is_no_certificate_is_a_value_error(der: bytes) -> None:
    with pytest.raises(ValueError):
        read_certificate(der)


@given(st.data())
def test_whatever_is_damaged_is_read_or_a_value_error(data: st.DataObject) -> None:
    damaged = bytearray(DER)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(DER) - 1))] = data.draw(st.integers(0, 255))
    try:
        certificate = read_certificate(bytes(damaged[: data.draw(st.integers(0, len(DER)))]))
    except ValueError:
        return
    assert certificate.subject.isprintable()


@given(st.binary(max_size=200))
def test_any_bytes_are_no_more_than_a_value_error(der: bytes) -> None:
    with pytest.raises(ValueError):
        read_certificate(der)
