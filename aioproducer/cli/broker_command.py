"""`aioproducer broker`: a cluster for people without Kafka."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack

import click

from aioproducer.cli.output import echo
from aioproducer.testing import Cluster, Refused


async def serve(*, port: int, brokers: int, topics: Mapping[str, int]) -> None:
    """Run a cluster until cancelled; a *port* of 0 is any that is free, for every broker.

    Raises: ClickException if a port is taken, or a topic cannot be created.
    """
    async with AsyncExitStack() as stack:
        try:
            cluster = await stack.enter_async_context(Cluster(brokers, topics, port=port or None))
        except OSError as error:
            ports = f"port {port}" if brokers == 1 else f"ports {port} to {port + brokers - 1}"
            reason = os.strerror(error.errno or 0)
            raise click.ClickException(
                f"cannot listen on {ports}: {reason}; choose another --port"
            ) from error
        except Refused as refused:
            raise click.ClickException(refused.message) from refused
        echo("A Kafka cluster, in memory: when this ends, everything is gone. Ctrl-C ends it.")
        echo(f"bootstrap servers: {cluster.bootstrap_servers}")
        await asyncio.Event().wait()
