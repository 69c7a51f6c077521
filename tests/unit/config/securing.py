"""Security options as settings, or a refusal that shows no secret."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.security.security_settings import SaslSettings, SecuritySettings
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError


def settings(**options: Any) -> SecuritySettings:
    return ProducerConfig(bootstrap_servers="a:1", **options).security_settings()


def sasl(mechanism: object, **options: Any) -> SaslSettings:
    found = settings(security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, **options).sasl
    assert found is not None
    return found


def refusal(**options: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        settings(**options)
    assert "hunter2" not in str(raised.value)
    return str(raised.value)


def sasl_refusal(mechanism: str, **options: Any) -> str:
    return refusal(security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, **options)
