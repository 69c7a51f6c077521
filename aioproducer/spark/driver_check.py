"""The check on the driver before a task runs: the login, the topics, and the right to write to them."""

from __future__ import annotations

import asyncio
import itertools
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from aioproducer._topic_client import BACKOFF
from aioproducer.errors import (
    ProducerError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    broker_error,
)
from aioproducer.spark.messages import log_unchecked

if TYPE_CHECKING:
    from aioproducer._core.protocol.metadata import MetadataResponseTopic
    from aioproducer._topic_client import Client
    from aioproducer.spark.sink_options import ProducerSettings
    from aioproducer.spark.worker import Worker

ANSWER_S: Final = 5.0
"""Maximum time for a first answer: tasks wait longer for slow brokers, so a late answer is no error."""
CREATION_S: Final = 3.0
"""Maximum time for brokers to create a topic (`auto.create.topics.enable`), or to list a topic created a moment ago."""
MAY_WRITE: Final = 1 << 4
"""The bit of AclOperation.WRITE among the authorized operations of a topic (KIP-430)."""


@lru_cache(
    maxsize=16
)  # once per process: Spark plans each micro-batch twice, and ends a process after an idle minute
def check(host: Worker, settings: ProducerSettings, topics: tuple[str, ...]) -> None:
    """Check that brokers accept the login, have *topics*, and authorize the login to write to *topics*.

    Without an answer the driver logs a WARNING, and the tasks start: executors may reach brokers that the driver does not.

    Raises: AuthenticationFailed, TopicAuthorizationFailed, UnknownTopicOrPartition; ProducerError: another refusal.
    """
    try:
        host.ask_topics(settings, partial(_check, topics), within_s=ANSWER_S + CREATION_S)
    except UnknownTopicOrPartition:
        raise
    except TimeoutError:
        log_unchecked(f"the brokers did not answer in {ANSWER_S + CREATION_S:g} s")
    except ProducerError as error:
        if not error.retriable:
            raise
        log_unchecked(f"{type(error).__name__}: {error}")


async def _check(topics: tuple[str, ...], client: Client) -> None:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + CREATION_S
    for count in itertools.count():
        answer = await client.describe(topics, for_writing=True)
        missing = [topic.name for topic in answer.topics if _is_missing(topic)]
        if not missing:
            return
        delay_s = BACKOFF.delay_s(count)
        if loop.time() + delay_s > ends_at:
            raise UnknownTopicOrPartition(
                f"topic {missing[0]!r}: the brokers do not have it, and did not create it within {CREATION_S:g} s;"
                " create it, or correct its name"
            )
        await asyncio.sleep(delay_s)


def _is_missing(topic: MetadataResponseTopic) -> bool:
    """Return True if *topic* does not exist. Raises: ProducerError: it cannot be written to."""
    code = topic.error_code
    if code == UnknownTopicOrPartition.code:
        return True
    # 0 and negative numbers: the broker does not report operations
    if code == TopicAuthorizationFailed.code or (
        not code
        and topic.topic_authorized_operations > 0
        and not topic.topic_authorized_operations & MAY_WRITE
    ):
        raise TopicAuthorizationFailed(
            f"topic {topic.name!r}: the login may not write to it; grant it Write on the topic"
        )
    if code:
        error = broker_error(code)
        if not error.retriable:
            raise error(f"topic {topic.name!r}: {(error.__doc__ or error.__name__).splitlines()[0]}")
    return False
