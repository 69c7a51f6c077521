"""How an error is told to somebody at a shell: what happened, to whom, and what may help."""

from __future__ import annotations

import os
import re
from typing import Final

from aioproducer.errors import ConnectionFailed, ProducerError

_NOBODY: Final = "no bootstrap server could be asked for metadata: "
_ERRNO: Final = re.compile(r"\[Errno (-?\d+)\] ")
_CONNECT_CALL: Final = re.compile(r"\[Errno (\d+)\] Connect call failed \(.*\)")
_NEXT: Final = re.compile(r"; (?=\S+:\d+(?: \(bootstrap\))?: )")
_ONE: Final = re.compile(r"(?P<server>\S+:\d+)(?: \(bootstrap\))?: (?P<why>.*)")
HINT: Final = "Is a Kafka cluster there? `aioproducer broker` runs one for development."


def complaint(error: ProducerError) -> str:
    """Return what to tell the user: one line for most errors, two where nobody could be reached."""
    told = f"{type(error).__name__}: {error}"
    if not isinstance(error, ConnectionFailed):
        return told
    by_reason: dict[str, list[str]] = {}
    for each in _NEXT.split(str(error).removeprefix(_NOBODY)):
        one = _ONE.fullmatch(each)
        if one is None:
            return told  # it is about something else: told as it is
        by_reason.setdefault(_reason(one["why"]), []).append(one["server"])
    servers = sum(map(len, by_reason.values()))
    tried = f" ({servers} brokers tried)" if servers > 1 else ""
    reasons = "; ".join(
        f"connection refused by {', '.join(those)}"
        if reason == "connection refused"
        else f"{', '.join(those)}: {reason}"
        for reason, those in by_reason.items()
    )
    return f"{type(error).__name__}: {reasons}{tried}\n{HINT}"


def _reason(why: str) -> str:
    why = why.removeprefix("cannot connect: ")
    if failed := _CONNECT_CALL.fullmatch(why):
        return os.strerror(int(failed[1])).lower()
    return _ERRNO.sub("", why)
