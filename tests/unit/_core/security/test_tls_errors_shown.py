from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aioproducer._core.security.mechanism import Broker
from aioproducer._core.security.tls_errors import shown_chain
from tests.unit._core.security.certificates import Authority, Issued, server_context

AUTHORITY = Authority()


@contextlib.asynccontextmanager
async def listening(
    tmp_path: Path,
    *,
    tls: bool = True,
    clients_of: Authority | None = None,
    issued: Issued = AUTHORITY.issue("a.example", "b.example"),  # noqa: B008 - not changed by anyone
) -> AsyncIterator[int]:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    context = server_context(issued, tmp_path, clients_of=clients_of) if tls else None
    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_certificate_is_shown_to_anybody(tmp_path: Path) -> None:
    async with listening(tmp_path) as port:
        chain = await shown_chain(Broker("wrong.example.", port), ("127.0.0.1", port))
    (certificate,) = chain
    assert certificate.names == ("a.example", "b.example")
    assert certificate.issuer == "CN=lab authority"


async def test_chain_has_intermediate_certificates(tmp_path: Path) -> None:
    between = Authority("between", issuer=AUTHORITY)
    issued = between.issue("a.example")._replace(chain_above=between.pem)
    async with listening(tmp_path, issued=issued) as port:
        chain = await shown_chain(Broker("a.example", port), ("127.0.0.1", port))
    assert [each.subject for each in chain] == ["CN=broker, O=lab", "CN=between"]


@pytest.mark.parametrize("broker", [Broker("127.0.0.1", 1), Broker("", 1)])
async def test_who_is_not_there_shows_none(broker: Broker) -> None:
    assert await shown_chain(broker) == ()


async def test_who_speaks_no_tls_shows_none(tmp_path: Path) -> None:
    async with listening(tmp_path, tls=False) as port:
        assert await shown_chain(Broker("127.0.0.1", port)) == ()
