"""Request classes by API key, for servers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from aioproducer._core.protocol import admin, client, consumer, metadata, produce, transactions
from aioproducer._core.protocol.schema import Request

REQUESTS: Final[Mapping[int, type[Request[Any]]]] = MappingProxyType(
    {
        each.API_KEY: each
        for module in (admin, client, consumer, metadata, produce, transactions)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Request) and each is not Request
    }
)
