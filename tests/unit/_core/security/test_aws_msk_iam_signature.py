"""Signatures that botocore's SigV4QueryAuth makes for the same requests at the same time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from aioproducer._core.security.aws_msk_iam import presigned

NOW = datetime(2013, 5, 24, tzinfo=UTC)


@pytest.mark.parametrize(
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
def test_it_is_what_botocore_makes(action: str, session_token: str | None, signature: str) -> None:
    query = presigned(
        host="b-1.example",
        service="kafka-cluster",
        region="eu-west-1",
        parameters={"Action": action},
        access_key="AKIDEXAMPLE",
        secret_key="secret/key",
        session_token=session_token,
        now=NOW,
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
