"""What the documentation says is what the code does."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer import errors
from aioproducer.batching.state import LEGAL
from aioproducer.errors import (
    AuthenticationFailed,
    BrokerError,
    ConfigError,
    DuplicateSequenceNumber,
    SendManyError,
)
from aioproducer.sender import outcomes
from aioproducer.testing import ThreadedCluster
from benchmarks.faults.clients import CLIENTS
from benchmarks.faults.report import HEADINGS
from benchmarks.faults.scenarios import SCENARIOS

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs/design.md").read_text()
RELIABILITY = (ROOT / "docs/reliability.md").read_text()
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


def cells_of_errors() -> list[list[str]]:
    """Return the cells of the table of errors, row by row."""
    table = RELIABILITY.split("<!-- errors: begin -->")[1].split("<!-- errors: end -->")[0]
    _, _, *rows = table.strip().splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def error_class(name: str) -> type[Exception]:
    found: type[Exception] = getattr(errors, name, None) or getattr(builtins, name)
    assert issubclass(found, Exception)
    return found


ERRORS = {
    error_class(name): (retried, persisted, retriable, advice)
    for named, _, retried, persisted, retriable, advice in cells_of_errors()
    for name in re.findall(r"`(\w+)`", named)
}
BROKER_ERRORS = [kind for kind in ERRORS if issubclass(kind, BrokerError) and kind is not BrokerError]
NEVER_RAISED_BY_A_SEND = {ConfigError, AuthenticationFailed}
SAID_OF: dict[type, str] = {
    outcomes.Retry: "yes",
    outcomes.Restamp: "yes, under a new sequence",
    outcomes.Split: "yes, in halves",
    outcomes.FailRecords: "yes, without the records named",
    outcomes.Deliver: "it counts as delivered",
    outcomes.Fail: "no",
}


def test_the_table_of_errors_has_each_once() -> None:
    named = [name for named, *_ in cells_of_errors() for name in re.findall(r"`(\w+)`", named)]
    public = {found for name in errors.__all__ if isinstance(found := getattr(errors, name), type)}
    assert len(named) == len(set(named))
    assert set(ERRORS) == public - NEVER_RAISED_BY_A_SEND | {TypeError, ValueError}


@pytest.mark.parametrize("kind", BROKER_ERRORS)
def test_the_table_of_errors_tells_what_a_brokers_answer_leads_to(kind: type[BrokerError]) -> None:
    standing = outcomes.Standing(
        records=2,
        idempotent=True,
        oldest=True,
        uncertain=False,
        last_attempt=False,
    )
    retried, persisted, _, _ = ERRORS[kind]
    assert retried == SAID_OF[type(outcomes.judge(kind("no"), standing, {0: "bad"}))]
    if kind is not DuplicateSequenceNumber:
        assert persisted == ("no" if kind.definitely_refused else "maybe")


@pytest.mark.parametrize("kind", ERRORS)
def test_the_table_of_errors_tells_what_is_retriable_and_advises_to_send_it_again(
    kind: type[Exception],
) -> None:
    *_, said, advice = ERRORS[kind]
    retriable = getattr(kind, "retriable", False)
    assert advice.startswith("send it again") == retriable
    if kind is SendManyError:
        assert said == "if any of them is"
    else:
        assert said == ("yes" if retriable else "no")


def test_promises_are_shown_by_tests_that_exist() -> None:
    promises = RELIABILITY.split("## Promises")[1].split("## ")[0]
    for path, name in re.findall(r"`(tests/[\w./]+)(?:::(\w+))?`", promises):
        assert name in (ROOT / path).read_text(), f"{path} has no {name}"
    words_of_the_judge = "".join(path.read_text() for path in (ROOT / "tests/scenarios/faults").glob("*.py"))
    shown_by = [row.split("|")[4] for row in promises.splitlines() if row.startswith("| R")]
    assert len(shown_by) == 13
    for words in re.findall(r"\*([^*]+)\*", "".join(shown_by)):
        assert f'"{words}' in words_of_the_judge, f"the judge does not say: {words}"


def test_the_table_of_clients_is_of_the_faults_that_are_measured() -> None:
    table = RELIABILITY.split("## Side by side")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line[:1] == "|"
    ]
    heads, _, *measured = rows
    assert tuple(heads) == HEADINGS
    assert [row[0] for row in measured if row[0]] == [scenario.title for scenario in SCENARIOS]
    assert [row[1] for row in measured] == list(CLIENTS) * len(SCENARIOS)
