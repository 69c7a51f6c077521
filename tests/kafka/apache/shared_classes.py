"""The classes of a broker as a JVM has loaded and verified them, made once into .cache: the next ones start in half the time."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.kafka.apache.broker import QUICK_START, ApacheKafka
from tests.kafka.apache.jars import CACHE, class_path
from tests.kafka.apache.java import find_java, shared_classes
from tests.kafka.apache.node import BrokerFailed


def share_classes(say: Callable[[str], None] = print) -> None:
    """Have a broker leave its classes to those after it, unless one has, or this Java shares none.

    Two processes may call this at once; one does it, the other waits. Without them, brokers are slower to start.
    """
    java = find_java()
    archive = shared_classes(java, class_path(say))
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        if not archive.exists() and can_share(java):
            say(f"Sharing what brokers have in common into {archive.parent}, once ...")
            with suppress(BrokerFailed):
                _make(archive)


def can_share(java: Path) -> bool:
    """Whether *java* has classes of its own to share, without which there is nothing to add to."""
    return _starts(java)


def _starts(java: Path, *options: str) -> bool:
    command = [str(java), *options, "-Xshare:on", "-version"]
    return subprocess.run(command, check=False, capture_output=True, cwd=CACHE).returncode == 0


def _make(archive: Path) -> None:
    unfinished = archive.with_suffix(".unfinished")
    with ApacheKafka(jvm_options=(*QUICK_START, f"-XX:ArchiveClassesAtExit={unfinished}")) as kafka:
        kafka.create_topic("any")
        kafka.shut_down()  # in order: a JVM that is killed leaves nothing
    # a JVM may die of a file that was cut short
    if _starts(find_java(), *QUICK_START, f"-XX:SharedArchiveFile={unfinished}", "-cp", class_path()):
        unfinished.replace(archive)
