"""The jars of Apache Kafka: pinned in jars.lock, fetched once into .cache/jars, checked on every use.

To move to another release: change VERSION, then `python -m tests.kafka.apache.jars` rewrites jars.lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import requests
from jgo.maven import MavenContext

VERSION = "4.3.1"
LOCK = Path(__file__).with_name("jars.lock")
CACHE = Path(__file__).parents[3] / ".cache" / "jars"

BROKER = f"org.apache.kafka:kafka_2.13:{VERSION}"  # with everything it depends on
ALONE = (  # without their dependencies
    f"org.apache.kafka:kafka-tools:{VERSION}",  # what it has for Kafka Connect wants many jars more
    "org.slf4j:slf4j-simple:1.7.36",  # says on standard error what the broker logs; fits Kafka's slf4j-api
)


class JarsUnavailable(RuntimeError):
    """Jars could not be fetched, or are not the ones that were pinned."""


class Jar(NamedTuple):
    """A pinned jar."""

    coordinate: str
    """group:artifact:version"""
    sha256: str

    @property
    def path(self) -> Path:
        """Where the jar lies in the cache (the layout of every Maven repository)."""
        group, artifact, version = self.coordinate.split(":")
        return CACHE.joinpath(*group.split("."), artifact, version, f"{artifact}-{version}.jar")

    @property
    def intact(self) -> bool:
        """Whether the jar is in the cache, byte for byte as it was pinned."""
        return self.path.is_file() and _sha256(self.path) == self.sha256


def class_path(say: Callable[[str], None] = print) -> str:
    """Return the class path of a broker, after fetching the jars that are missing (cold: about 45 MB, seconds).

    Raises:
        JarsUnavailable: a jar could not be fetched or is not the pinned one; the message says what to do.
    """
    return os.pathsep.join(map(str, fetched(LOCK, f"Apache Kafka {VERSION}", say)))


def fetched(lock: Path, what: str, say: Callable[[str], None]) -> list[Path]:
    """Return the jars that *lock* pins, after fetching those that are missing; *what* they are is told meanwhile.

    Two processes may call this at once; one fetches, the other waits.

    Raises:
        JarsUnavailable: as `class_path`.
    """
    jars = pinned(lock)
    CACHE.mkdir(parents=True, exist_ok=True)
    with CACHE.with_suffix(".lock").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        if missing := [jar for jar in jars if not jar.intact]:
            say(f"Fetching {what} ({len(missing)} jars) into {CACHE}, once ...")
            _fetch(missing, lock)
    return [jar.path for jar in jars]


def pinned(lock: Path = LOCK) -> list[Jar]:
    """Return what a lock file pins."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return [Jar(coordinate, sha256) for sha256, coordinate in pairs]


def _fetch(jars: Sequence[Jar], lock: Path) -> None:
    for jar in jars:
        jar.path.unlink(missing_ok=True)  # half a download, or damaged: the resolver would take it as it is
    with ThreadPoolExecutor(max_workers=8) as pool:
        for jar, path in zip(jars, pool.map(_download, (jar.coordinate for jar in jars)), strict=True):
            if not jar.intact:
                raise JarsUnavailable(
                    f"{path} has SHA-256 {_sha256(path)}, but {lock.name} pins {jar.sha256}"
                )


def _download(coordinate: str) -> Path:
    try:
        return _resolver().create_dependency(coordinate).artifact.resolve()
    except requests.exceptions.SSLError as error:
        raise JarsUnavailable(
            f"could not fetch {coordinate}: {error}\n"
            "Behind a proxy that signs with its own certificate, name the bundle that holds it:\n"
            "    export REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt"
        ) from error
    except (OSError, RuntimeError) as error:
        raise JarsUnavailable(f"could not fetch {coordinate}: {error}") from error


def _resolver() -> MavenContext:
    return MavenContext(repo_cache=CACHE, timeout=60)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rewrite_lock() -> None:
    """Resolve what a broker of VERSION needs, fetch it, and pin it."""
    pin(resolved(BROKER) | {*ALONE}, LOCK, f"Apache Kafka {VERSION}", "tests.kafka.apache.jars")


def resolved(coordinate: str) -> set[str]:
    """Return *coordinate* and its transitive dependencies."""
    context = _resolver()
    _, transitive = context.resolver.resolve([context.create_dependency(coordinate)])
    return {coordinate} | {f"{jar.groupId}:{jar.artifactId}:{jar.version}" for jar in transitive}


def pin(coordinates: Iterable[str], lock: Path, what: str, made_by: str) -> None:
    """Fetch jars, and write down in *lock* which ones they are."""
    ordered = sorted(coordinates)
    with ThreadPoolExecutor(max_workers=8) as pool:
        paths = pool.map(_download, ordered)
        pins = [f"{_sha256(path)} {coordinate}\n" for coordinate, path in zip(ordered, paths, strict=True)]
    lock.write_text(
        f"# {what}: SHA-256 and coordinate; made by `python -m {made_by}`\n" + "".join(pins),
        encoding="utf-8",
    )


if __name__ == "__main__":
    rewrite_lock()
