"""The names, next to aiokafka's own."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import aiokafka.errors

from aioproducer import errors as ours
from aioproducer.compat.aiokafka import errors
from tests.cases import for_each

OURS = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, Exception)
}
NUMBERED = [kind for kind in OURS.values() if hasattr(kind, "errno")]
AS_KAFKA_SAYS = {2, 9, 51, 72}
"""Codes that Apache Kafka calls retriable, and aiokafka does not."""


@for_each("name", OURS)
def test_errors_have_aiokafkas_names_and_bases(name: str) -> None:
    theirs = getattr(aiokafka.errors, name)
    assert [kind.__name__ for kind in OURS[name].__mro__] == [kind.__name__ for kind in theirs.__mro__]
    assert getattr(OURS[name], "errno", None) == getattr(theirs, "errno", None)


@for_each("name", OURS)
def test_errors_are_retriable_as_in_aiokafka(name: str) -> None:
    ours: Any = OURS[name]
    theirs = getattr(aiokafka.errors, name)
    if getattr(ours, "errno", None) in AS_KAFKA_SAYS:
        assert ours.retriable
        assert not theirs.retriable
    else:
        facts = ("retriable", "invalid_metadata")
        assert [getattr(ours, fact, None) for fact in facts] == [
            getattr(theirs, fact, None) for fact in facts
        ]


def test_code_known_to_both_packages_has_the_class_of_aiokafka() -> None:
    named = {getattr(vars(ours)[name], "code", None) for name in ours.__all__}
    both = named & aiokafka.errors.kafka_errors.keys()
    assert {code for code in both if errors.for_code(code).errno != code} == {13}  # not sent by brokers


def test_code_without_a_name_is_an_unknown_error() -> None:
    assert errors.for_code(87) is errors.UnknownError
    assert errors.for_code(0) is errors.UnknownError  # NoError is nothing that is raised
    assert aiokafka.errors.for_code(87) is aiokafka.errors.UnknownError


def test_errors_have_aiokafkas_text() -> None:
    for own, theirs in (
        (errors.KafkaTimeoutError("why"), aiokafka.errors.KafkaTimeoutError("why")),
        (errors.ProducerClosed(), aiokafka.errors.ProducerClosed()),
        (errors.RequestTimedOutError(), aiokafka.errors.RequestTimedOutError()),
        (errors.InvalidTopicError("why"), aiokafka.errors.InvalidTopicError("why")),
    ):
        assert str(own) == str(theirs)


def test_error_description_is_the_docstring() -> None:
    kind = errors.TopicAuthorizationFailedError
    assert kind.message == aiokafka.errors.TopicAuthorizationFailedError.message
    assert (
        kind.description
        == kind.__doc__
        == "The principal lacks the permission Write (or Describe) on the topic."
    )


@for_each("kind", NUMBERED)
def test_errors_can_be_pickled(kind: type[errors.BrokerResponseError]) -> None:
    if kind is not errors.BrokerResponseError:
        error = kind("why")
        error.possibly_persisted = True
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.args, copy.possibly_persisted) == (kind, ("why",), True)


def test_aiokafka_is_not_imported() -> None:
    program = "import sys, aioproducer.compat.aiokafka.errors; print('aiokafka' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert output.stdout.split() == [b"False"]
