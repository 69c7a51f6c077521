from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from aioproducer._core.address import Address
from aioproducer._core.security.aws_msk_iam import AwsCredentials, AwsMskIam, BotocoreCredentials, presigned
from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.secret import Secret
from tests.cases import for_each
from tests.unit._core.security.conversation import reply, settled

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOST = "b-1.lab.abc123.c2.kafka.eu-west-1.amazonaws.com"


def login(*, region: str | None = None, token: str | None = None) -> AwsMskIam:
    found = AwsCredentials("AKID", Secret("hunter2"), Secret(token) if token else None, region)
    return AwsMskIam(lambda: found, lambda: NOW)


async def payload(mechanism: AwsMskIam, host: str) -> dict[str, str]:
    parsed: dict[str, str] = json.loads(await settled(mechanism.start(Address(host, 9098))))
    return parsed


@pytest.mark.parametrize("token", [None, "session"])
async def test_first_message_is_a_signed_request(token: str | None) -> None:
    said = await payload(login(token=token), HOST)
    assert said.pop("user-agent").startswith("aioproducer/")
    assert said.pop("version") == "2020_10_22"
    assert said.pop("host") == HOST
    assert said == {
        name.lower(): value
        for name, value in presigned(
            host=HOST,
            service="kafka-cluster",
            region="eu-west-1",
            parameters={"Action": "kafka-cluster:Connect"},
            access_key="AKID",
            secret_key="hunter2",
            session_token=token,
            now=NOW,
            expires_s=900,
        ).items()
    }
    assert set(said) >= {"action", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires"}
    assert "hunter2" not in str(said)


@for_each(
    ("host", "region"),
    [
        (HOST, "eu-west-1"),
        (f"{HOST}.", "eu-west-1"),
        ("boot-abc.c1.kafka-serverless.us-gov-east-1.amazonaws.com", "us-gov-east-1"),
        ("b-1.x.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("broker.example", "af-south-1"),
    ],
)
async def test_region_comes_from_the_host_name_or_the_options(host: str, region: str) -> None:
    said = await payload(login(region="af-south-1"), host)
    assert said["x-amz-credential"] == f"AKID/20260102/{region}/kafka-cluster/aws4_request"


async def test_missing_region_fails_the_login() -> None:
    with pytest.raises(Refused, match="set AWS_REGION"):
        await payload(login(), "broker.example")


async def test_silence_is_a_refusal() -> None:
    mechanism = login()
    await payload(mechanism, HOST)
    with pytest.raises(Refused, match="did not accept the signature"):
        await reply(mechanism, b"")
    assert not mechanism.complete


async def test_first_response_completes_the_login() -> None:
    mechanism = login()
    await payload(mechanism, HOST)
    assert await reply(mechanism, b'{"version":"2020_10_22","request-id":"x"}') == b""
    assert mechanism.complete
    with pytest.raises(Refused):
        await reply(mechanism, b"{}")


class BotoCoreError(Exception):
    pass


class FakeSession:
    """Subset of botocore's session used by the mechanism."""

    def __init__(self, found: object, region: str | None) -> None:
        self.found = found
        self.region = region

    def get_credentials(self) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def get_config_variable(self, name: str) -> str | None:
        assert name == "region"
        return self.region


def botocore(monkeypatch: pytest.MonkeyPatch, found: object, region: str | None = None) -> None:
    """Replace the package by one whose single session renews expired credentials."""
    sessions = iter([FakeSession(found, region)])
    package, session, exceptions = (ModuleType(f"botocore{part}") for part in ("", ".session", ".exceptions"))
    vars(session)["Session"] = lambda: next(sessions)
    vars(exceptions)["BotoCoreError"] = BotoCoreError
    for module in package, session, exceptions:
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_botocore_is_asked_each_time_by_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = SimpleNamespace(access_key="AKID", secret_key="hunter2", token="session")
    botocore(monkeypatch, SimpleNamespace(get_frozen_credentials=lambda: frozen), "eu-west-1")
    credentials = BotocoreCredentials()
    assert credentials() == AwsCredentials("AKID", Secret("hunter2"), Secret("session"), "eu-west-1")
    frozen.secret_key, frozen.token = "hunter3", None
    assert credentials() == AwsCredentials("AKID", Secret("hunter3"), None, "eu-west-1")


def test_region_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "af-south-1")
    frozen = SimpleNamespace(access_key="AKID", secret_key="hunter2", token=None)
    botocore(monkeypatch, SimpleNamespace(get_frozen_credentials=lambda: frozen))
    assert BotocoreCredentials()().region == "af-south-1"


def test_missing_credentials_error_names_aws_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    botocore(monkeypatch, None)
    with pytest.raises(Refused, match="finds no AWS credentials: set AWS_PROFILE"):
        BotocoreCredentials()()


def test_error_of_botocore_is_named_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    botocore(monkeypatch, BotoCoreError("hunter2"))
    with pytest.raises(Refused, match=r"^botocore has no AWS credentials: BotoCoreError$"):
        BotocoreCredentials()()


EXAMPLE_TIME = datetime(2013, 5, 24, tzinfo=UTC)


@for_each(
    ("action", "session_token", "signature"),
    [
        ("kafka-cluster:Connect", None, "79ea54dfe571db04b6a66b55673f99ac6dccf8bd4a438790235c500519d5fa0d"),
        (
            "kafka-cluster:Connect",
            "tok/en+==",
            "0350b8d57e4a54aab085343e015cd7a54e54cbfc42ba9110056fdf649455e8ca",
        ),
        ("a b+c/~*ü", None, "13840b28836045c17e12278b7c12adc0724ce3926f51c2635817869006a4bcc0"),
        ("a b+c/~*ü", "tok/en+==", "80d18dedf4e63f1235307133a1ba9588c390cd0b8b239db7b01f2077f0aaf431"),
    ],
)
def test_signature_equals_that_of_botocore(action: str, session_token: str | None, signature: str) -> None:
    query = presigned(
        host="b-1.example",
        service="kafka-cluster",
        region="eu-west-1",
        parameters={"Action": action},
        access_key="AKIDEXAMPLE",
        secret_key="secret/key",
        session_token=session_token,
        now=EXAMPLE_TIME,
        expires_s=900,
    )
    token = {"X-Amz-Security-Token": session_token} if session_token else {}
    assert query == {
        "Action": action,
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": "AKIDEXAMPLE/20130524/eu-west-1/kafka-cluster/aws4_request",
        "X-Amz-Date": "20130524T000000Z",
        "X-Amz-Expires": "900",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Signature": signature,
        **token,
    }
