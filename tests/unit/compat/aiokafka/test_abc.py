"""A token provider as aiokafka's users write one."""

from __future__ import annotations

import aiokafka.abc
import pytest

from aioproducer.compat.aiokafka.abc import AbstractTokenProvider


@pytest.mark.parametrize("base", [AbstractTokenProvider, aiokafka.abc.AbstractTokenProvider])
async def test_token_provider_has_aiokafkas_interface(base: type[AbstractTokenProvider]) -> None:
    class Provider(base):  # type: ignore[valid-type, misc]
        async def token(self) -> str:
            return await super().token() or "mine"

    with pytest.raises(TypeError, match="abstract"):
        base()
    provider = Provider()
    assert await provider.token() == "mine"
    assert provider.extensions() == {}
