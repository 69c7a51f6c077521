from __future__ import annotations

import pytest

from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.plain import Plain
from tests.unit._core.security.conversation import credentials, first, reply


async def test_there_is_one_message() -> None:
    mechanism = Plain(credentials("ü", "p\u00a0w"))
    assert not mechanism.complete
    assert await first(mechanism) == b"\0\xc3\xbc\0p\xc2\xa0w"
    assert await reply(mechanism, b"") == b""
    assert mechanism.complete


@pytest.mark.parametrize(
    ("username", "password"), [("", "p"), ("u", ""), ("u\0root", "p"), ("u", "hunter\0")]
)
async def test_what_would_be_read_as_something_else_is_not_sent(username: str, password: str) -> None:
    with pytest.raises(Refused) as raised:
        await first(Plain(credentials(username, password)))
    assert "hunter" not in str(raised.value)
