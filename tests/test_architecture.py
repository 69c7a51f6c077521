"""What import-linter cannot see: files stay readable, and inner packages have no second door."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "aioproducer"
DATA = PACKAGE / "cli/data"
LINES_IN_ONE_SITTING = 400
PUBLIC_PACKAGES = {
    PACKAGE,
    *(
        PACKAGE / name
        for name in ("arrow", "audit", "cli", "compat/aiokafka", "config", "errors", "spark", "testing")
    ),
}

SOURCES = sorted(
    path for folder in ("aioproducer", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
)
INNER_DOORS = sorted(path for path in PACKAGE.rglob("__init__.py") if path.parent not in PUBLIC_PACKAGES)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_package_holds_its_source_and_nothing_else() -> None:
    """Everything in it is installed: no backups, no notes, no data but the demo's."""
    strangers = [
        name(path)
        for path in PACKAGE.rglob("*")
        if "__pycache__" not in path.parts
        and not (path.is_dir() or path.suffix == ".py" or path.name == "py.typed" or path.parent == DATA)
    ]
    assert strangers == []


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_IN_ONE_SITTING


@pytest.mark.parametrize("path", INNER_DOORS, ids=name)
def test_a_name_is_imported_from_the_module_that_defines_it(path: Path) -> None:
    """An inner `__init__` that re-exports would be a second way to the same name, and a source of cycles."""
    assert path.read_text(encoding="utf-8").strip() == ""
