"""Error messages about missing packages."""

from __future__ import annotations

import tomllib
from pathlib import Path

from aioproducer._core.extras import EXTRAS, needs

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_extras_are_those_of_pyproject() -> None:
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert {name: list(packages) for name, packages in EXTRAS.items()} == {
        name: declared[name] for name in EXTRAS
    }


def test_install_command_names_packages_of_an_index() -> None:
    assert needs("a terminal", "cli", "pyte>=1") == (
        'a terminal needs the extra \'cli\': pip install "click>=8.1" "rich>=13.7" "pyte>=1"'
    )


def test_install_command_is_written_in_one_module() -> None:
    package = PYPROJECT.parent / "aioproducer"
    others = [str(path) for path in package.rglob("*.py") if 'pip install "aioproducer' in path.read_text()]
    assert others == []
