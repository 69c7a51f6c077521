from __future__ import annotations

import pytest

from aioproducer._core.security.mechanism import Broker, Mechanism
from aioproducer._core.security.passwords import Plain, Scram
from tests.unit._core.security.conversation import credentials


@pytest.mark.parametrize(
    ("broker", "text"), [(Broker("a", 9092), "a:9092"), (Broker("::1", 9092), "[::1]:9092")]
)
def test_a_broker_is_called_by_host_and_port(broker: Broker, text: str) -> None:
    assert str(broker) == text


def test_ours_are_mechanisms() -> None:
    assert isinstance(Plain(credentials()), Mechanism)
    assert isinstance(Scram("SCRAM-SHA-256", credentials()), Mechanism)
    assert not isinstance(object(), Mechanism)
