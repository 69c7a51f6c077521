"""Callables that are given by name."""

from __future__ import annotations

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.config.named_code import named_code
from aioproducer.errors import ConfigError

TABLE = ("no", "callable")


class Vault:
    """Where a job might have its secrets."""

    @staticmethod
    def login() -> tuple[str, str]:
        return "alice", "hunter2"


def test_a_name_becomes_the_callable() -> None:
    assert named_code(f"{__name__}:Vault.login") is Vault.login
    assert named_code("") is None


@pytest.mark.parametrize(
    "text", ["hunter2", ":", "vault:", ":login", "vault:log in", "va-ult:login", "https://x:8080/y"]
)
def test_what_is_no_name_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected the name of a function, such as package.module:function$"):
        named_code(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no.such.module:login", "cannot be imported: No module named 'no'"),
        (f"{__name__}:Vault.nothing", "cannot be imported: .* has no attribute 'nothing'"),
        (f"{__name__}:TABLE", "is of type tuple, which cannot be called"),
    ],
)
def test_what_is_not_there_is_told(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        named_code(text)


@pytest.mark.parametrize("option", ["sasl.credentials", "sasl.oauth.token.provider", "ssl.context"])
def test_options_that_take_code_take_its_name_from_a_file(option: str) -> None:
    mechanism = "OAUTHBEARER" if "token" in option else "PLAIN"
    others = "" if option == "sasl.credentials" or "token" in option else "sasl.username=a\nsasl.password=b\n"
    text = (
        f"bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n{others}"
        f"{option} = {__name__}:Vault.login\n"
    )
    config = ProducerConfig.from_properties(text)
    assert getattr(config, option.replace(".", "_")) is Vault.login
    for wrong, why in [("hunter2", "expected the name of a function"), ("no:login", "cannot be imported")]:
        with pytest.raises(ConfigError, match=f"^{option}: .*{why}") as refusal:
            ProducerConfig.from_properties(text.replace(f"{__name__}:Vault.login", wrong))
        assert "hunter2" not in str(refusal.value)
