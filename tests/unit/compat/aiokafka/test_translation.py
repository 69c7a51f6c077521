"""Our errors and Futures as aiokafka's."""

from __future__ import annotations

import asyncio
import pickle
import sys
from typing import Any

import aiokafka.errors
import pytest

from aioproducer import errors as ours
from aioproducer.compat.aiokafka import errors as theirs
from aioproducer.compat.aiokafka.translation import as_aiokafka, relayed, translated, translating
from aioproducer.errors.send_many import SendManyResult
from tests.cases import for_each


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


SILENT = caused(ours.ConnectionFailed("no answer"), TimeoutError())
UNREACHED = caused(ours.ConnectionFailed("cannot connect", written=False), TimeoutError())
DENIED = ours.TopicAuthorizationFailed("no")
SEVERAL = caused(ours.SendManyError("two failed", result=SendManyResult("orders", 2)), DENIED)

TRANSLATIONS = [
    (ours.TopicAuthorizationFailed("why"), theirs.TopicAuthorizationFailedError),
    (ours.MessageTooLarge("why"), theirs.MessageSizeTooLargeError),
    (ours.UnsupportedVersion("why"), theirs.UnsupportedVersionError),
    (ours.SaslAuthenticationFailed("why"), theirs.SaslAuthenticationFailed),
    (ours.InvalidRecord("why"), theirs.UnknownError),
    (ours.RecordTooLarge("why"), theirs.MessageSizeTooLargeError),
    (ours.MetadataTimeout("why"), theirs.UnknownTopicOrPartitionError),
    (ours.BufferTimeout("why"), theirs.KafkaTimeoutError),
    (ours.ProducerClosed("why"), theirs.ProducerClosed),
    (ours.ConnectionFailed("why"), theirs.KafkaConnectionError),
    (UNREACHED, theirs.KafkaConnectionError),
    (SILENT, theirs.RequestTimedOutError),
    (ours.AuthenticationFailed("why"), theirs.AuthenticationFailedError),
    (ours.ProtocolError("why"), theirs.KafkaProtocolError),
    (ours.WrongLoop("why"), theirs.KafkaError),
    (ours.DeliveryTimeout("why"), theirs.KafkaTimeoutError),
    (ours.DeliveryTimeout("why", possibly_persisted=True), theirs.RequestTimedOutError),
    (caused(ours.DeliveryTimeout("why"), ours.NotEnoughReplicas()), theirs.NotEnoughReplicasError),
    (caused(ours.DeliveryTimeout("why", possibly_persisted=True), SILENT), theirs.RequestTimedOutError),
    (caused(ours.DeliveryTimeout("why"), UNREACHED), theirs.NodeNotReadyError),
    (caused(ours.DeliveryTimeout("why"), ours.ConnectionFailed("lost")), theirs.KafkaConnectionError),
]


@for_each(("error", "kind"), TRANSLATIONS)
def test_error_is_translated_to_the_class_of_aiokafka(error: ours.ProducerError, kind: type[Any]) -> None:
    translation = translated(error)
    assert isinstance(translation, kind)
    assert type(translation).__name__ == kind.__name__
    assert translation.args == (str(error),)
    assert translation.__cause__ is error
    assert getattr(translation, "possibly_persisted", None) is error.possibly_persisted


def test_batch_fails_with_the_error_of_its_first_record() -> None:
    translation = translated(SEVERAL)
    assert isinstance(translation, theirs.TopicAuthorizationFailedError)
    assert translation.__cause__ is DENIED


def test_other_errors_are_not_translated() -> None:
    error = TypeError("value")
    assert translated(error) is error
    with pytest.raises(TypeError), translating():
        raise error


def test_translating_converts_raised_errors() -> None:
    with pytest.raises(theirs.TopicAuthorizationFailedError) as caught, translating():
        raise DENIED
    assert caught.value.__cause__ is DENIED


class TestRelayed:
    async def test_result_is_converted(self) -> None:
        inner = asyncio.get_running_loop().create_future()
        outer = relayed(inner, str)
        inner.set_result(7)
        assert await outer == "7"

    async def test_failure_is_translated(self) -> None:
        inner = asyncio.get_running_loop().create_future()
        outer = relayed(inner, str)
        inner.set_exception(DENIED)
        with pytest.raises(theirs.TopicAuthorizationFailedError):
            await outer

    async def test_unread_failure_is_not_reported_to_asyncio(self) -> None:
        told: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        inner = loop.create_future()
        outer = relayed(inner, str)
        inner.set_exception(DENIED)
        await asyncio.sleep(0)
        assert outer.done()
        del inner, outer
        assert told == []

    @pytest.mark.parametrize("failed", [False, True])
    async def test_cancelled_relay_leaves_the_inner_future_pending(self, failed: bool) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        inner = asyncio.get_running_loop().create_future()
        outer = relayed(inner, str)
        outer.cancel()
        assert not inner.done()
        if failed:
            inner.set_exception(DENIED)
        else:
            inner.set_result(7)
        await asyncio.sleep(0)
        assert outer.cancelled()
        assert told == []

    async def test_relayed_future_is_cancelled_with_the_inner_one(self) -> None:
        inner = asyncio.get_running_loop().create_future()
        outer = relayed(inner, str)
        inner.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer


class TestAsAiokafka:
    def test_class_is_unchanged_without_aiokafka(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, "aiokafka.errors", raising=False)
        assert as_aiokafka(theirs.KafkaTimeoutError) is theirs.KafkaTimeoutError

    def test_class_is_caught_by_both_except_clauses_with_aiokafka(self) -> None:
        kind = as_aiokafka(theirs.TopicAuthorizationFailedError)
        assert issubclass(kind, aiokafka.errors.TopicAuthorizationFailedError)
        assert issubclass(kind, theirs.TopicAuthorizationFailedError)
        assert issubclass(kind, aiokafka.errors.KafkaError)
        assert as_aiokafka(theirs.TopicAuthorizationFailedError) is kind
        assert str(kind("why")) == str(theirs.TopicAuthorizationFailedError("why"))

    def test_error_unknown_to_aiokafka_has_our_class_only(self) -> None:
        class Nameless(Exception):
            pass

        assert as_aiokafka(Nameless) is Nameless

    def test_translated_error_can_be_pickled(self) -> None:
        error = translated(ours.TopicAuthorizationFailed("why", possibly_persisted=True))
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (again.args, vars(again)["possibly_persisted"]) == (error.args, True)
