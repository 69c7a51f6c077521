"""A PostgreSQL server for tests: on loopback, gone when the `with` block ends."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

START_TIMEOUT_S: Final = 30


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None if there is none."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    folders = [each.parent for each in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(folders, key=lambda each: int(each.parent.name), default=None)


@contextmanager
def running_postgres() -> Iterator[str]:
    """Yield the URL of a database. PostgreSQL refuses to run as root, so root starts it as `nobody`."""
    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL server here (Debian and Fedora: postgresql)")
    user = "nobody" if os.geteuid() == 0 else None
    data = tempfile.mkdtemp(prefix="postgres-")
    try:
        if user is not None:
            shutil.chown(data, user)
        initdb = [
            str(folder / "initdb"),
            "-D",
            data,
            "-U",
            "shop",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-sync",
        ]
        subprocess.run(initdb, user=user, cwd=data, check=True, capture_output=True)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        options = ["-p", str(port), "-h", "127.0.0.1", "-k", "", "-F"]
        with subprocess.Popen(
            [folder / "postgres", "-D", data, *options],
            user=user,
            cwd=data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as server:
            try:
                _await(port, server)
                yield f"postgresql://shop@127.0.0.1:{port}/postgres"
            finally:
                server.terminate()
    finally:
        shutil.rmtree(data)


def _await(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert server.poll() is None, "PostgreSQL has ended"
            assert time.monotonic() < deadline, "PostgreSQL does not start"
            time.sleep(0.05)
        else:
            return
