"""The page about stability: its public names exist, and it has every name used in pages and examples."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer._core.protocol import schema
from tests.kafka.apache import jars

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/stability.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
PUBLIC: dict[str, str] = {
    module: what
    for modules, what in re.findall(r"^\| (`aioproducer[^|]*) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    for module in re.findall(r"`([\w.]+)`", modules)
}
"""What is said of each module."""
SHOWN = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "tests/typing").glob("*.py")),
]


def programs(path: Path) -> Iterator[ast.Module]:
    text = path.read_text()
    for program in [text] if path.suffix == ".py" else re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        yield ast.parse(program, str(path))


def imported(path: Path) -> set[tuple[str, str]]:
    return {
        (node.module, name.name)
        for program in programs(path)
        for node in ast.walk(program)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "aioproducer"
        for name in node.names
        if node.module
    }


def is_public(module: str, name: str) -> bool:
    what = PUBLIC.get(module, "")
    if "`__all__`" in what:
        return name in importlib.import_module(module).__all__
    if what.startswith(("names in ", "aiokafka's names", "every function")):
        return not name.startswith("_")
    return f"`{name}`" in what or ("`…_serializer`" in what and name.endswith("_serializer"))


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_documented_names_are_public(path: Path) -> None:
    for module, name in imported(path):
        assert is_public(module, name), f"{path.name} imports {name} from {module}"


@pytest.mark.parametrize(("module", "what"), PUBLIC.items())
def test_public_names_exist(module: str, what: str) -> None:
    importlib.import_module(module)
    homes = [importlib.import_module(each) for each, said in PUBLIC.items() if said == what]
    for name in re.findall(r"`(\w+)`", what):
        assert any(hasattr(home, name) for home in homes), name


def test_modules_for_other_packages_are_public() -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    for module in re.findall(r"^## (contrib\.\w+)$", page, re.MULTILINE):
        assert f"aioproducer.{module}" in PUBLIC


def test_supported_versions_are_those_of_the_tests() -> None:
    pythons, brokers = PAGE.split("## Pythons")[1].split("## Brokers")
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    tested = re.findall(r"^PYTHONS := (.*)$", MAKEFILE, re.MULTILINE)[0].split()
    assert re.findall(r"3\.\d+", pythons) == classified == tested
    assert PROJECT["requires-python"] == f">={classified[0]}"
    kafka, spark = brokers.split("\nSpark ")
    assert f"Apache Kafka {schema._OLDEST_KAFKA} and later" in kafka
    assert f"against Apache Kafka {jars.VERSION}," in kafka
    sparks = re.findall(r"4\.\d+", spark)
    assert sparks == re.findall(r"^SPARKS := (.*)$", MAKEFILE, re.MULTILINE)[0].split()
