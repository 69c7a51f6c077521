"""Runs tests of the C code under AddressSanitizer and UndefinedBehaviorSanitizer: `make sanitize`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / ".cache" / "sanitize"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
TESTS = (
    *(f"tests/unit/_core/{name}" for name in ("batching", "intake", "records")),
    *(
        f"tests/unit/_core/test_{name}.py"
        for name in ("acceleration", "acceleration_fields", "murmur2", "partitioning")
    ),
    *("tests/unit/arrow", "tests/unit/test_producer.py"),
    *(
        f"tests/property/test_{name}.py"
        for name in ("batching_machine", "bytes_column", "murmur2", "record_buffer")
    ),
    *(f"tests/property/test_{name}.py" for name in ("fast_append", "receipts_order", "records_roundtrip")),
    *(f"tests/property/test_acceleration{name}.py" for name in ("", "_awaiting", "_produce", "_rows")),
    "tests/scenarios/test_interrupted_append.py",
)


def main() -> int:
    """Build a copy of the package with sanitizers, and run the tests with that copy."""
    import hatch_build  # noqa: PLC0415 - needs build tools, and other tests read TESTS

    library = _library()
    if library is None:
        sys.stdout.write("left out: gcc and its libasan are missing\n")
        return 0
    shutil.rmtree(COPY, ignore_errors=True)
    left_out = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("aioproducer", "tests", "benchmarks", "examples", "pyspark_aioproducer"):
        shutil.copytree(ROOT / name, COPY / name, ignore=left_out)
    for name in ("pyproject.toml", "hatch_build.py"):
        shutil.copy(ROOT / name, COPY)
    os.environ["CC"] = "gcc"
    hatch_build.COMPILE[:] = [
        "-O1",
        "-g",
        "-fno-omit-frame-pointer",
        "-fvisibility=hidden",
        "-U_FORTIFY_SOURCE",
        *SANITIZERS,
    ]
    hatch_build.LINK[:] = SANITIZERS
    hatch_build.compile_in_place(str(COPY))
    # Memory of objects comes from malloc, where the sanitizer guards each object. The interpreter frees nothing at its end.
    environment = os.environ | {
        "ASAN_OPTIONS": "detect_leaks=0",
        "LD_PRELOAD": library,
        "PYTHONASYNCIODEBUG": "1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(COPY),
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    tests = sys.argv[1:] or TESTS
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--capture=sys",
        "--timeout",
        "0",
        *tests,
    ]
    return subprocess.run(command, cwd=COPY, env=environment, check=False).returncode


def _library() -> str | None:
    """Return the path of the sanitizer's library, or None."""
    if shutil.which("gcc") is None:
        return None
    command = ["gcc", "-print-file-name=libasan.so"]
    path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return path if Path(path).is_absolute() else None


if __name__ == "__main__":
    sys.exit(main())
