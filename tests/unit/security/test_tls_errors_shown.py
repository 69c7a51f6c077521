from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aioproducer.security.mechanism import Broker
from aioproducer.security.tls_errors import shown_certificate
from tests.unit.security.certificates import Authority, server_context

AUTHORITY = Authority()


@contextlib.asynccontextmanager
async def listening(
    tmp_path: Path, *, tls: bool = True, clients_of: Authority | None = None
) -> AsyncIterator[int]:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    issued = AUTHORITY.issue("a.example", "b.example")
    context = server_context(issued, tmp_path, clients_of=clients_of) if tls else None
    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_certificate_is_shown_to_anybody(tmp_path: Path) -> None:
    async with listening(tmp_path) as port:
        certificate = await shown_certificate(Broker("wrong.example.", port), ("127.0.0.1", port))
    assert certificate is not None
    assert certificate.names == ("a.example", "b.example")
    assert certificate.issuer == "CN=lab authority"


@pytest.mark.parametrize("broker", [Broker("127.0.0.1", 1), Broker("", 1)])
async def test_who_is_not_there_shows_none(broker: Broker) -> None:
    assert await shown_certificate(broker) is None


async def test_who_speaks_no_tls_shows_none(tmp_path: Path) -> None:
    async with listening(tmp_path, tls=False) as port:
        assert await shown_certificate(Broker("127.0.0.1", port)) is None
