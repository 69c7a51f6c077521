"""A pytest plugin that replaces aiokafka's class, and provides a broker for aiokafka's own tests.

The plugin runs in the environment of these tests: see substitute.py.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.helpers import create_ssl_context
from substitute import substitute

substitute()


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class(request: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Stand in for the fixture of this name, which starts a container."""
    host, port = os.environ["KAFKA"].split(":")
    where = {
        "loop": loop,
        "kafka_host": host,
        "kafka_port": int(port),
        "kafka_ssl_port": int(os.environ["KAFKA_TLS_PORT"]),
        "hosts": [f"{host}:{port}"],
        "kafka_version": "4.0.0",
        "create_ssl_context": lambda _: create_ssl_context(cafile=os.environ["KAFKA_CA"]),
    }
    for name, value in where.items():
        setattr(request.cls, name, value)
