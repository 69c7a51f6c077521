"""What the documentation says is what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer.batching.state import LEGAL
from aioproducer.testing import ThreadedCluster

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs/design.md").read_text()
README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def test_the_diagram_of_batch_states_is_the_table() -> None:
    diagram = DESIGN.split("<!-- states: begin -->")[1].split("<!-- states: end -->")[0]
    drawn = set(re.findall(r"(\w+) --> (\w+)", diagram))
    assert drawn == {(state.name, to.name) for state, legal in LEGAL.items() for to in legal}


def test_the_file_map_names_what_is_there() -> None:
    file_map = DESIGN.split("## File map")[1].split("## ")[0]
    named = set(re.findall(r"`([a-z_]+)/?`|`([a-z_]+)\.py`", file_map))
    rooms = {
        path.stem
        for path in (ROOT / "aioproducer").iterdir()
        if path.name not in {"__init__.py", "py.typed", "__pycache__"}
    }
    assert rooms <= {name for pair in named for name in pair}


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=str)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_example_in_the_readme_runs(kafka_cluster: ThreadedCluster) -> None:
    (program,) = (
        block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "import" in block
    )
    program = program.replace("localhost:9092", kafka_cluster.bootstrap_servers)
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert output.stdout.decode().split() == ["orders", "0", "0"]


def test_the_example_of_the_testing_page_runs() -> None:
    page = (ROOT / "docs/reference/testing.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    program = f"import asyncio\n{example}\nasyncio.run(test_my_service())"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
