"""The fake cluster of franz-go (`kfake`), started and controlled by tests; records are read back by franz-go's client."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.kafka.readback import Record

SOURCE: Final = Path(__file__).with_name("kfake")
BINARY: Final = Path(__file__).parents[2] / ".cache" / "kfake"


def reason_to_skip() -> str:
    """Return why the cluster cannot be built here, or an empty string."""
    wanted = re.search(r"^go (\d+)\.(\d+)", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert wanted is not None
    if shutil.which("go") is None:
        return f"Go {wanted[1]}.{wanted[2]} or newer is not installed"
    found = subprocess.run(("go", "env", "GOVERSION"), capture_output=True, check=True, text=True, cwd="/")
    version = re.match(r"go(\d+)\.(\d+)", found.stdout)
    if version is not None and (int(version[1]), int(version[2])) < (int(wanted[1]), int(wanted[2])):
        return f"Go {wanted[1]}.{wanted[2]} or newer is not installed, only {version[0]}"
    return ""


@cache
def build() -> Path:
    """Build the cluster from the modules that go.sum pins, and return the program."""
    BINARY.parent.mkdir(exist_ok=True)
    built = BINARY.with_name(f"kfake-{os.getpid()}")  # another process may run the program, or build it now
    command = ("go", "build", "-mod=readonly", "-buildvcs=false", "-o", str(built), ".")
    subprocess.run(command, cwd=SOURCE, env={**os.environ, "GOTOOLCHAIN": "local"}, check=True)
    built.replace(BINARY)
    return BINARY


class FranzGoCluster:
    """A running cluster."""

    def __init__(self, process: asyncio.subprocess.Process, servers: list[str]) -> None:
        self._process = process
        self.bootstrap_servers: Final = ",".join(servers)

    async def run(self, do: str, **arguments: object) -> dict[str, Any]:
        """Run one command of main.go and return its answer. Raises: RuntimeError if the command fails."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        return await _answer(self._process)

    async def fail(self, key: int, code: int, *, count: int = 1) -> None:
        """Answer the next *count* requests with this API key by the error *code*."""
        await self.run("fail", key=key, code=code, count=count)

    async def drop(self, key: int, *, count: int = 1) -> None:
        """Close the connections of the next *count* requests with this API key."""
        await self.run("drop", key=key, count=count)

    async def hits(self) -> int:
        """Return the number of requests that `fail` and `drop` have affected."""
        return int((await self.run("hits"))["hits"])

    async def read(self, topic: str, count: int, *, committed: bool = False) -> list[Record]:
        """Return the *count* records of *topic*. Raises: RuntimeError if *topic* has more or fewer records."""
        answer = await self.run("read", topic=topic, count=count, committed=committed)
        return sorted(_record(each) for each in answer["records"])


async def _answer(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    answer: dict[str, Any] = json.loads(await process.stdout.readline() or b'{"error": "kfake has ended"}')
    if error := answer.get("error"):
        raise RuntimeError(error)
    return answer


def _record(found: dict[str, Any]) -> Record:
    return Record(
        found["partition"],
        found["offset"],
        _bytes(found["key"]),
        _bytes(found["value"]),
        tuple((each["key"], _bytes(each["value"])) for each in found["headers"]),
        found["timestamp_ms"],
        log_append_time=False,
    )


def _bytes(encoded: str | None) -> bytes | None:
    return None if encoded is None else base64.b64decode(encoded)


@asynccontextmanager
async def franz_go_cluster(*, brokers: int = 3, version: str = "") -> AsyncIterator[FranzGoCluster]:
    """Run a cluster; *version* limits its API versions to those of a release of Apache Kafka."""
    process = await asyncio.create_subprocess_exec(
        BINARY,
        *("-brokers", str(brokers)),
        *(("-version", version) if version else ()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=2**26,
    )
    assert process.stdin is not None
    try:
        yield FranzGoCluster(process, (await _answer(process))["servers"])
    finally:
        process.stdin.close()  # kfake ends at the end of its input
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()
