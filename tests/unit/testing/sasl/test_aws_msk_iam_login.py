from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aioproducer._core.security.aws_msk_iam import AwsCredentials, AwsMskIam
from aioproducer._core.security.mechanism import Broker
from aioproducer._core.security.secret import Secret
from aioproducer.errors import SaslAuthenticationFailed
from aioproducer.testing import Refused
from aioproducer.testing.sasl.aws_msk_iam_login import AwsMskIamLogin
from aioproducer.testing.sasl.server_login import Accounts

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def signed(*, secret: str = "secret", token: str | None = None) -> dict[str, Any]:
    credentials = AwsCredentials("AKIA1", Secret(secret), Secret(token) if token else None, "eu-central-1")
    message = await AwsMskIam(lambda: credentials, now=lambda: NOW).start(Broker("127.0.0.1", 9092))
    said: dict[str, Any] = json.loads(message)
    return said


def login(message: object, *, late: timedelta = timedelta()) -> str | None:
    login = AwsMskIamLogin(Accounts({"AKIA1": "secret"}), now=lambda: NOW + late)
    answer = login.respond(json.dumps(message).encode())
    assert json.loads(answer)["version"] == "2020_10_22"
    return login.user


@pytest.mark.parametrize("token", [None, "session/token+="])
@pytest.mark.parametrize("late", [timedelta(minutes=-4), timedelta(minutes=14)])
async def test_who_knows_the_secret_is_let_in(token: str | None, late: timedelta) -> None:
    assert login(await signed(token=token), late=late) == "AKIA1"


@pytest.mark.parametrize("late", [timedelta(minutes=-6), timedelta(minutes=16)])
async def test_a_signature_does_not_hold_for_ever(late: timedelta) -> None:
    with pytest.raises(Refused, match="Access denied"):
        login(await signed(), late=late)


async def test_another_secret_is_refused() -> None:
    with pytest.raises(Refused, match=r"^\[[-0-9a-f]{36}\]: Access denied$") as refused:
        login(await signed(secret="wrong"))
    assert refused.value.code == SaslAuthenticationFailed.code


@pytest.mark.parametrize(
    "change",
    [
        {"host": "elsewhere"},
        {"action": "kafka-cluster:Delete"},
        {"version": "2020_10_23"},
        {"x-amz-credential": "AKIA2/20260101/eu-central-1/kafka-cluster/aws4_request"},
        {"x-amz-credential": "AKIA1/20260101/us-east-1/kafka-cluster/aws4_request"},
        {"x-amz-credential": "AKIA1/20260101/eu-central-1/s3/aws4_request"},
        {"x-amz-credential": "AKIA1"},
        {"x-amz-expires": "901"},
        {"x-amz-expires": "9" * 99},
        {"x-amz-expires": "soon"},
        {"x-amz-date": "20260101T120001Z"},
        {"x-amz-date": 5},
        {"x-amz-security-token": "another"},
        {"x-amz-algorithm": "none"},
        {"x-amz-signedheaders": "user-agent"},
        {"x-amz-signature": None},
        {"x-amz-signature": 5},
        {"x-amz-signature": ""},
    ],
)
async def test_what_was_changed_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="Access denied"):
        login(await signed() | change)


@pytest.mark.parametrize("message", [None, 5, "text", [], {}])
def test_what_makes_no_sense_is_refused(message: object) -> None:
    with pytest.raises(Refused, match="Access denied"):
        login(message)


def test_what_is_no_json_is_refused() -> None:
    for message in (b"", b"\xff", b"[" * 100_000):
        with pytest.raises(Refused, match="Access denied"):
            AwsMskIamLogin(Accounts({"AKIA1": "secret"})).respond(message)
