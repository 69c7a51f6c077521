"""The benchmark suite: python -m benchmarks --help."""

from __future__ import annotations

from benchmarks.cli import program

if __name__ == "__main__":
    program(prog_name="python -m benchmarks")
