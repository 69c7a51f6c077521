"""Virtual environments with only the given requirements, without pip."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def make_environment(folder: Path, *requirements: str) -> Path:
    """Make a virtual environment in *folder*, install *requirements* into it, and return its Python."""
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(python))
    succeed(*pip, "install", "--no-compile", "-c", str(ROOT / "constraints.txt"), *requirements)
    return python


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run *command* to its end, whatever that is."""
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=cwd)


def succeed(*command: str | Path, cwd: Path | None = None) -> str:
    """Run *command* and return its output; if it fails, fail the test with the whole output."""
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
