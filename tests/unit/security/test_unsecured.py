from __future__ import annotations

import base64
import json

from aioproducer.security.oauth_settings import UnsecuredSettings
from aioproducer.security.unsecured import unsecured


async def test_a_token_has_claims_and_no_signature() -> None:
    fetch = unsecured(UnsecuredSettings({"sub": "alice"}, lives_s=60), {"a": "b"}, wall=lambda: 1000.0)
    token = await fetch()
    header, payload, signature = token.value.reveal().split(".")
    assert signature == ""
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims == {"sub": "alice", "iat": 1000.0, "exp": 1060.0}
    assert (token.expires_at, token.extensions) == (1060.0, {"a": "b"})
