"""Parts of the commands that send: signals, the wait for the topic, and texts of outcomes and errors."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aioproducer.cli.logs import without_warnings
from aioproducer.errors import ConnectionFailed, MetadataTimeout, ProducerError, SendManyError

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.producer import Producer

_TERMINATING: Final = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals of Ctrl-C, `kill` and a closed terminal; Windows has no SIGHUP."""


@contextmanager
def on_signals(interrupt: Callable[[], object]) -> Iterator[None]:
    """Call *interrupt* in the event loop for each signal that asks the process to end."""
    loop = asyncio.get_running_loop()

    def notify(*_: object) -> None:
        loop.call_soon_threadsafe(interrupt)

    numbers = [getattr(signal, name) for name in _TERMINATING if hasattr(signal, name)]
    # nohup ignores SIGHUP
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, notify) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


TOPIC_S: Final = 5.0
"""Time limit for a topic, enough for automatic creation; a misspelt name fails soon."""


async def await_topic(producer: Producer, topic: str) -> None:
    """Wait for the metadata of *topic*, without warnings in the log.

    Raises: MetadataTimeout: no broker has the topic within `TOPIC_S`; ProducerError: error of a broker.
    """
    try:
        with without_warnings("aioproducer.metadata"):
            async with asyncio.timeout(TOPIC_S):
                _ = await producer.partitions_for(topic)
    except TimeoutError:
        raise MetadataTimeout(
            f"no broker knew a topic {topic!r} in {TOPIC_S:.0f} s: is the name right?"
        ) from None


async def failures_of(call: Callable[[], Awaitable[object]], records: int) -> Mapping[int, ProducerError]:
    """Send *records* records by a `send_many` *call*; return the errors of failed records by position."""
    try:
        _ = await call()
    except SendManyError as error:
        return error.result.failures
    except ProducerError as error:  # the producer is closed or has crashed
        return dict.fromkeys(range(records), error)
    return {}


class Failures(Counter[str]):
    """Number of failed records by error class, with the message of the first error of the class."""

    def add(self, error: BaseException) -> None:
        """Count a record that failed."""
        kind = f"{type(error).__name__}: "
        self[next((message for message in self if message.startswith(kind)), f"{kind}{error}")] += 1


def counted(records: int) -> str:
    """Return `1 record`, or `2,000 records`."""
    return f"{records:,} record{'' if records == 1 else 's'}"


def done(config: ProducerConfig) -> str:
    """Return the word for a successful record: with acks=0 brokers send no acknowledgement."""
    return "written, acks=0" if config.acks == 0 else "acknowledged"


def audit_hint(config: ProducerConfig, topic: str, run: str, expect: int) -> str:
    """Return the audit command for a run."""
    servers = ",".join(config.bootstrap_servers)
    with_what = "" if config.security_protocol == "PLAINTEXT" else ", and the options for security"
    return (
        f"Is all of it there? aioproducer audit {topic} --bootstrap-servers {servers}"
        f" --run {run} --expect {expect}{with_what}\n"
    )


_NO_SERVER: Final = "no bootstrap server could be asked for metadata: "
_ERRNO: Final = re.compile(r"\[Errno (-?\d+)\] ")
_CONNECT_CALL: Final = re.compile(r"\[Errno (\d+)\] Connect call failed \(.*\)")
_NEXT: Final = re.compile(r"; (?=\S+:\d+(?: \(bootstrap\))?: )")
_ONE: Final = re.compile(r"(?P<server>\S+:\d+)(?: \(bootstrap\))?: (?P<why>.*)")
HINT: Final = "Is a Kafka cluster there? `aioproducer broker` runs one for development."
_ABOUT_SECURITY: Final = re.compile(r"\b(TLS|SASL)\b")
SECURITY_HINT: Final = (
    "Set --security-protocol, or security.protocol in --config, to the protocol of the listener."
)


def error_text(error: ProducerError) -> str:
    """Return the text of *error*: one line, or two if no broker could be reached."""
    text = f"{type(error).__name__}: {error}"
    if not isinstance(error, ConnectionFailed):
        return text
    by_reason: dict[str, list[str]] = {}
    for each in _NEXT.split(str(error).removeprefix(_NO_SERVER)):
        one = _ONE.fullmatch(each)
        if one is None:
            return text  # not a list of addresses
        by_reason.setdefault(_reason(one["why"]), []).append(one["server"])
    servers = sum(map(len, by_reason.values()))
    tried = f" ({servers} brokers tried)" if servers > 1 else ""
    reasons = "; ".join(
        f"connection refused by {', '.join(those)}"
        if reason == "connection refused"
        else f"{', '.join(those)}: {reason}"
        for reason, those in by_reason.items()
    )
    hint = SECURITY_HINT if _ABOUT_SECURITY.search(reasons) else HINT
    return f"{type(error).__name__}: {reasons}{tried}\n{hint}"


def _reason(why: str) -> str:
    why = why.removeprefix("cannot connect: ")
    if failed := _CONNECT_CALL.fullmatch(why):
        return os.strerror(int(failed[1])).lower()
    return _ERRNO.sub("", why)
