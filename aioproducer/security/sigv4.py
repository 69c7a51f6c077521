"""AWS Signature Version 4, of a query: the little of it that a login to MSK needs."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Final
from urllib.parse import quote

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
    """Return the *parameters* of `GET https://host/` together with those that sign them, as of *now* (UTC)."""
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
