"""The messages equal Kafka's definitions: names, order, types, nullability, defaults, versions, tags."""

from __future__ import annotations

import pytest

from aioproducer._core.protocol.schema import NEVER, Message, Request
from tests.conformance.definitions import FOREVER, as_declared, as_kafka_says, definition, versions
from tests.property.messages import MESSAGES, message_id

NEWER = {"ApiVersionsRequest": 5, "ApiVersionsResponse": 5}
"""Versions of Kafka 4.4 (KIP-1242), which the definitions of the pinned release lack."""
KNOWN = [(cls, version) for cls, version in MESSAGES if version < NEWER.get(cls.__name__, NEVER)]
CLASSES = sorted({cls for cls, _ in MESSAGES}, key=lambda cls: cls.__name__)


@pytest.mark.parametrize(("cls", "version"), KNOWN, ids=message_id)
def test_message_version_has_the_fields_of_its_definition(cls: type[Message], version: int) -> None:
    assert as_declared(cls, version) == as_kafka_says(cls.__name__, version)


@pytest.mark.parametrize("cls", CLASSES, ids=message_id)
def test_api_keys_and_versions_are_those_of_kafka(cls: type[Message]) -> None:
    kafka = definition(cls.__name__)
    assert kafka["apiKey"] == cls.API_KEY
    assert kafka["type"] == ("request" if issubclass(cls, Request) else "response")
    flexible = kafka["flexibleVersions"]
    assert ((NEVER, FOREVER) if flexible == "none" else versions(flexible)) == (cls.FLEXIBLE_FROM, FOREVER)
    lowest, highest = versions(kafka["validVersions"])
    newest = cls.VERSIONS[1]
    if cls.__name__ in NEWER:
        assert highest < newest == NEWER[cls.__name__], "the pinned release knows it: take it out of NEWER"
        newest -= 1
    assert lowest <= cls.VERSIONS[0] <= newest <= highest


def test_definition_check_detects_a_wrong_field() -> None:
    """A check of the check: another version's fields are not these."""
    (produce,) = (cls for cls in CLASSES if cls.__name__ == "ProduceResponse")
    assert as_declared(produce, 9) != as_kafka_says("ProduceResponse", 10)
    assert as_declared(produce, 7) != as_kafka_says("ProduceResponse", 8)
