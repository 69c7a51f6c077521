from __future__ import annotations

from aioproducer._core.security.mechanism import Mechanism
from aioproducer._core.security.passwords import Plain, Scram
from tests.unit._core.security.conversation import credentials


def test_password_clients_are_mechanisms() -> None:
    assert isinstance(Plain(credentials()), Mechanism)
    assert isinstance(Scram("SCRAM-SHA-256", credentials()), Mechanism)
    assert not isinstance(object(), Mechanism)
