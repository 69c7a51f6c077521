"""Tokens that nobody has signed, for brokers of one's own that ask for no more (KIP-255). Never in production."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aioproducer.security.oauth_settings import UnsecuredSettings
from aioproducer.security.secret import Secret
from aioproducer.security.tokens import Token


def unsecured(
    settings: UnsecuredSettings, extensions: Mapping[str, str], wall: Callable[[], float] = time.time
) -> Callable[[], Awaitable[Token]]:
    """Return what makes tokens of the algorithm "none"."""

    async def fetch() -> Token:
        now = wall()
        claims = {"iat": now, "exp": now + settings.lives_s, **settings.claims}
        value = f"{_part({'alg': 'none'})}.{_part(claims)}."
        return Token(Secret(value), now + settings.lives_s, dict(extensions))

    return fetch


def _part(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
