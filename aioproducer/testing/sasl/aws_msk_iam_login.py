"""The broker's side of AWS_MSK_IAM: sign the request again, and compare."""

from __future__ import annotations

import hmac
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from aioproducer._core.security.aws_msk_iam import presigned
from aioproducer.errors import SaslAuthenticationFailed
from aioproducer.testing.refusal import Refused
from aioproducer.testing.sasl.server_login import Accounts

VERSION: Final = "2020_10_22"
ACTION: Final = "kafka-cluster:Connect"
CLOCKS_DIFFER: Final = timedelta(minutes=5)


class AwsMskIamLogin:
    """One login by AWS_MSK_IAM: a signed request, and an answer that means nothing."""

    def __init__(
        self, accounts: Accounts, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._accounts = accounts
        self._now = now
        self.user: str | None = None

    def respond(self, message: bytes) -> bytes:
        """Check the signature."""
        request_id = str(uuid.uuid4())
        try:
            self.user = self._signer(json.loads(message))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            self.user = None
        if self.user is None:
            raise Refused(SaslAuthenticationFailed, f"[{request_id}]: Access denied")
        return json.dumps({"version": VERSION, "request-id": request_id}).encode()

    def _signer(self, said: dict[str, str]) -> str | None:
        """Return whose signature it is; None if it is nobody's. Raises: nearly anything, if it makes no sense."""
        access_key, _, region, *_ = said["x-amz-credential"].split("/")
        signed_at = datetime.strptime(said["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        expires_s = int(said["x-amz-expires"])
        secret_key = self._accounts.users.get(access_key)
        ages = signed_at - CLOCKS_DIFFER, signed_at + timedelta(seconds=expires_s)
        if secret_key is None or not ages[0] <= self._now() <= ages[1] or said["version"] != VERSION:
            return None
        expected = presigned(
            host=said["host"],
            service="kafka-cluster",
            region=region,
            parameters={"Action": ACTION},
            access_key=access_key,
            secret_key=secret_key,
            session_token=said.get("x-amz-security-token"),
            now=signed_at,
            expires_s=expires_s,
        )
        theirs = {name: said.get(name.lower()) for name in expected}
        signature = (theirs.pop("X-Amz-Signature") or "").encode()
        genuine = hmac.compare_digest(signature, expected.pop("X-Amz-Signature").encode())
        return access_key if genuine and theirs == expected else None
