from __future__ import annotations

import re

from aioproducer._core.protocol.schema import Request
from aioproducer.testing.handlers.table import APIS


def test_api_has_name_of_its_request() -> None:
    """By these names faults are scripted, and requests are counted."""
    requests = {each.API_KEY: each.__name__.removesuffix("Request") for each in Request.__subclasses__()}
    spelled = {number: re.sub(r"\B(?=[A-Z])", "_", requests[number]).lower() for number in APIS}
    assert {number: api.name for number, api in APIS.items()} == spelled
