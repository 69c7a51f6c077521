"""Configurations with the required options, and the messages of refused configurations."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError


def configure(**options: Any) -> ProducerConfig:
    return ProducerConfig(**{"bootstrap_servers": "localhost:9092", **options})


def refusal(**options: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        configure(**options)
    return str(raised.value)
