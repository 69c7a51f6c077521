"""Callables that are given by name."""

from __future__ import annotations

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.named_code import NAMED, with_named_code


class Vault:
    """Where a job might have its secrets."""

    @staticmethod
    def login() -> tuple[str, str]:
        return "alice", "hunter2"


@pytest.mark.parametrize("option", [*NAMED, "sasl_credentials"])
def test_a_name_becomes_the_callable(option: str) -> None:
    options = {option: f" {__name__}:Vault.login", "client.id": "a.b:c"}
    assert with_named_code(options) == {option: Vault.login, "client.id": "a.b:c"}


@pytest.mark.parametrize(
    "text", ["hunter2", "", ":", "vault:", ":login", "vault:log in", "va-ult:login", "https://x:8080/y"]
)
def test_what_is_no_name_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_named_code({"sasl.credentials": text})
    assert str(caught.value) == (
        "sasl.credentials: expected the name of a function, such as package.module:function"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no.such.module:login", "cannot be imported: No module named 'no'"),
        (f"{__name__}:Vault.nothing", "cannot be imported: .* has no attribute 'nothing'"),
        (f"{__name__}:NAMED", "is of type tuple, which cannot be called"),
    ],
)
def test_what_is_not_there_is_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_named_code({"ssl.context": text})
