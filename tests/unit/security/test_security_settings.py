from __future__ import annotations

from aioproducer.backoff import Backoff
from aioproducer.security.credentials import Login
from aioproducer.security.secret import Secret
from aioproducer.security.security_settings import SaslSettings, SecuritySettings


def test_nothing_is_secured_unasked() -> None:
    assert SecuritySettings() == SecuritySettings(tls=None, sasl=None)


def test_nothing_shows_a_secret() -> None:
    sasl = SaslSettings("PLAIN", Backoff(1, 2), credentials=Login("u", Secret("hunter2")))
    assert "hunter2" not in repr(SecuritySettings(sasl=sasl))
