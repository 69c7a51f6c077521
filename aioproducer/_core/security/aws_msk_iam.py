"""AWS_MSK_IAM: authentication at Amazon MSK by a signed request, with the credentials of botocore."""

from __future__ import annotations

import hashlib
import hmac
import importlib
import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import quote

from aioproducer._core.address import Address
from aioproducer._core.security.mechanism import Refused, SaslClient
from aioproducer._core.security.secret import Secret
from aioproducer._core.worker_threads import CALL_THREADS
from aioproducer.version import __version__

EXPIRES_S: Final = 900
_REGION_IN_HOST = re.compile(
    r"\.kafka(?:-serverless)?\.([a-z]{2,3}(?:-[a-z]+)+-\d+)\.amazonaws\.com(?:\.cn)?\.?$"
)


class AwsCredentials(NamedTuple):
    """Credentials of AWS."""

    access_key: str
    secret_key: Secret
    session_token: Secret | None
    region: str | None
    """Region of botocore's configuration; None without a configured region."""


class AwsMskIam(SaslClient):
    """One authentication by AWS_MSK_IAM."""

    name = "AWS_MSK_IAM"

    def __init__(
        self,
        credentials: Callable[[], AwsCredentials],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """*credentials* is called in a thread, because the callable may call a service."""
        super().__init__()
        self._credentials = credentials
        self._now = now

    async def start(self, broker: Address) -> bytes:
        """Return the signed request."""
        self.proof = credentials = await CALL_THREADS.run(self._credentials)
        host = broker.host.rstrip(".")
        found = _REGION_IN_HOST.search(host)
        region = found[1] if found else credentials.region
        if not region:
            raise Refused(f"the region is neither in the name {host!r} nor configured: set AWS_REGION")
        token = credentials.session_token
        self.secrets = (credentials.secret_key,) if token is None else (credentials.secret_key, token)
        query = presigned(
            host=host,
            service="kafka-cluster",
            region=region,
            parameters={"Action": "kafka-cluster:Connect"},
            access_key=credentials.access_key,
            secret_key=credentials.secret_key.reveal(),
            session_token=token.reveal() if token else None,
            now=self._now(),
            expires_s=EXPIRES_S,
        )
        payload = {"version": "2020_10_22", "host": host, "user-agent": f"aioproducer/{__version__}"}
        payload |= {name.lower(): value for name, value in query.items()}
        return json.dumps(payload, separators=(",", ":")).encode()

    def respond(self, challenge: bytes) -> bytes:
        """Accept any challenge except an empty challenge, by which MSK refuses the signature."""
        if self.complete or not challenge:
            raise Refused(
                "the broker did not accept the signature: check the IAM policy, the region and the clock"
            )
        self.complete = True
        return b""


class BotocoreCredentials:
    """Credentials from botocore, which searches the usual places of AWS tools and renews expired credentials."""

    def __init__(self) -> None:
        self._session: object = None

    def __call__(self) -> AwsCredentials:
        """Return the current credentials. Raises: Refused."""
        session_module = importlib.import_module("botocore.session")
        errors = importlib.import_module("botocore.exceptions")
        if self._session is None:
            self._session = session_module.Session()
        session = self._session
        try:
            found = session.get_credentials()  # type: ignore[attr-defined]
            if found is None:
                raise Refused("botocore finds no AWS credentials: set AWS_PROFILE, for example")
            frozen = found.get_frozen_credentials()
            region = session.get_config_variable("region") or os.environ.get("AWS_REGION")  # type: ignore[attr-defined]
        except errors.BotoCoreError as error:
            raise Refused(f"botocore has no AWS credentials: {type(error).__name__}") from error
        return AwsCredentials(
            frozen.access_key,
            Secret(frozen.secret_key),
            Secret(frozen.token) if frozen.token else None,
            region,
        )


# AWS Signature Version 4 of a query: only the parts that MSK needs.

ALGORITHM: Final = "AWS4-HMAC-SHA256"
_EMPTY_BODY: Final = hashlib.sha256(b"").hexdigest()


def presigned(
    *,
    host: str,
    service: str,
    region: str,
    parameters: Mapping[str, str],
    access_key: str,
    secret_key: str,
    session_token: str | None,
    now: datetime,
    expires_s: int,
) -> dict[str, str]:
    """Return the *parameters* of `GET https://host/` together with the signing parameters, as of *now* (UTC)."""
    day, stamp = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{day}/{region}/{service}/aws4_request"
    query = {
        **parameters,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(expires_s),
        "X-Amz-SignedHeaders": "host",
    }
    if session_token:
        query["X-Amz-Security-Token"] = session_token
    canonical_query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items())
    )
    request = "\n".join(["GET", "/", canonical_query, f"host:{host}", "", "host", _EMPTY_BODY])
    to_sign = "\n".join([ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    query["X-Amz-Signature"] = hmac.digest(key, to_sign.encode(), "sha256").hex()
    return query
