"""The documentation matches the code."""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aioproducer import errors
from aioproducer._core.batching.batch_state import TRANSITIONS
from aioproducer._core.records.compression import LEVELS, Codec
from aioproducer._core.sender import outcomes
from aioproducer._core.transactions.transaction_manager import (
    TRANSITIONS as OF_TRANSACTIONS_STATES,
    TransactionEvent,
    TransactionState,
)
from aioproducer.cli import commands
from aioproducer.cli.send.command import send
from aioproducer.contrib.exposition import METRICS
from aioproducer.contrib.prometheus import ProducerCollector
from aioproducer.errors import (
    BrokerError,
    ConfigError,
    DuplicateSequenceNumber,
    SendManyError,
)
from aioproducer.testing import Cluster, Rule, ThreadedCluster
from aioproducer.testing.handlers.table import APIS
from benchmarks.faults.clients import CLIENTS
from benchmarks.faults.report import HEADINGS
from benchmarks.faults.scenarios import SCENARIOS

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs/design.md").read_text()
INDEX = ROOT / "docs/decisions/index.md"
RECORDS = sorted(INDEX.parent.glob("[0-9]*.md"))
RELIABILITY = (ROOT / "docs/reliability.md").read_text()
TESTING = (ROOT / "docs/reference/testing.md").read_text()
METRICS_PAGE = (ROOT / "docs/metrics.md").read_text()
COMMAND_LINE = (ROOT / "docs/command-line.md").read_text()
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def test_batch_state_diagram_equals_the_table() -> None:
    diagram = DESIGN.split("<!-- states: begin -->")[1].split("<!-- states: end -->")[0]
    drawn = re.findall(r"(\w+) --> (\w+): (\w+)", diagram)
    assert diagram.count("-->") == len(drawn) == len(set(drawn))
    assert set(drawn) == {(state.name, to.name, event.name) for (state, event), to in TRANSITIONS.items()}


def test_transaction_state_diagram_equals_the_table() -> None:
    diagram = DESIGN.split("<!-- transactions: begin -->")[1].split("<!-- transactions: end -->")[0]
    drawn = re.findall(r"(\w+) --> (\w+): (\w+)", diagram)
    fatal = TransactionEvent.FAIL_FATALLY
    assert diagram.count("-->") == len(drawn) == len(set(drawn))
    assert set(drawn) == {
        (state.name, to.name, event.name)
        for (state, event), to in OF_TRANSACTIONS_STATES.items()
        if event is not fatal
    }
    assert {state for state, event in OF_TRANSACTIONS_STATES if event is fatal} == set(TransactionState)


def test_file_map_names_existing_files() -> None:
    file_map = DESIGN.split("## File map")[1].split("## ")[0]
    named = set(re.findall(r"`(?:\w+/)*(\w+)(?:\.py|/)?`", file_map))
    rooms = {
        path.stem
        for folder in ("aioproducer", "aioproducer/_core")
        for path in (ROOT / folder).iterdir()
        if path.name not in {"__init__.py", "_core", "py.typed", "__pycache__"}
        and path.suffix not in {".so", ".pyd"}
    }
    assert rooms <= named


FILES_OF_A_SEND = 24
"""So many files a lone send goes through, at most: who adds one makes every reader of a send open one more."""


def test_send_diagram_names_the_files_of_a_send() -> None:
    """The trace runs in its own process, because other tests fill the memos."""
    diagram = DESIGN.split("<!-- send: begin -->")[1].split("<!-- send: end -->")[0]
    program = [sys.executable, "-m", "benchmarks.trace_send"]
    pure = os.environ | {"AIOPRODUCER_PURE": "1"}  # tracers do not see calls in C
    told = subprocess.run(program, cwd=ROOT, env=pure, check=True, capture_output=True, text=True).stdout
    traced = re.findall(r"^ *\d+  ([\w/]+\.py)$", told, re.MULTILINE)
    assert set(re.findall(r"[\w/]+\.py", diagram)) == set(traced)
    assert len(traced) <= FILES_OF_A_SEND


@pytest.mark.parametrize("page", [ROOT / "docs/design.md", *RECORDS], ids=lambda page: page.stem)
def test_design_pages_name_existing_modules(page: Path) -> None:
    everything = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[abpt]*/**/*.[pc]*")}
    for named in re.findall(r"`([\w/]+\.(?:py|c))`", page.read_text()):
        assert any(path.endswith(f"/{named}") or path == named for path in everything), named


NOT_IN_THE_PACKAGE = {"FILES_OF_A_SEND", "MALLOC_TRIM_THRESHOLD_", "requestIdempotentEpochBumpForPartition"}


def test_decision_records_use_names_of_the_code() -> None:
    sources = [
        path.read_text()
        for folder in ("aioproducer", "benchmarks")
        for suffix in ("py", "c", "h")
        for path in (ROOT / folder).rglob(f"*.{suffix}")
    ]
    known = NOT_IN_THE_PACKAGE | {word for source in sources for word in re.findall(r"\w+", source)}
    for record in RECORDS:
        for code in re.findall(r"`([^`]+)`", record.read_text()):
            if "/" not in code:  # paths have a test of their own
                assert set(re.findall(r"[A-Za-z_]\w+", code)) <= known, f"{record.name}: {code}"


def test_decision_index_lists_each_record_with_its_title() -> None:
    rows = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+)\) \| .+\. \|$", INDEX.read_text(), re.MULTILINE)
    titles = {record.name: record.read_text().partition("\n")[0] for record in RECORDS}
    assert {name: f"# {number}. {title}" for number, title, name in rows} == titles
    assert sorted(int(number) for number, *_ in rows) == sorted({int(name[:4]) for name in titles})


def test_design_guide_is_at_most_350_lines() -> None:
    assert DESIGN.count("\n") <= 350


@pytest.mark.parametrize(
    ("question", "answer", "said"),
    [
        ("obstacle of an unsent batch", "_core/batching/partition_queue.py", "def next_batch"),
        ("cause of a timed-out record", "_core/sender/obstacles.py", "class Obstacles"),
        ("add an option", "config/kinds.py", "class Kind("),
        ("decides on `possibly_persisted`", "_core/idempotence.py", "def possibly_persisted"),
        ("add a metric", "_core/metrics.py", "class TopicCounters"),
        ("add an error code", "_core/sender/outcomes.py", "def decide"),
    ],
)
def test_routes_of_the_design_page_lead_to_their_subjects(question: str, answer: str, said: str) -> None:
    [route] = [line for line in DESIGN.splitlines() if line.startswith("|") and question in line]
    assert f"`{answer}`" in route
    assert said in (ROOT / "aioproducer" / answer).read_text()


def test_pages_name_every_codec_and_level_option() -> None:
    [line] = re.findall(r"^- Codecs: .+", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {str(codec) for codec in Codec if codec is not Codec.NONE} <= set(re.findall(r"\w+", line))
    options = ", ".join(f"`compression_{codec}_level`" for codec in LEVELS)
    [row] = re.findall(
        r"^\| (.+?) \| .+ \| `compression.level` \|",
        (ROOT / "docs/from-aiokafka.md").read_text(),
        re.MULTILINE,
    )
    assert row == options


EVERY_PAGE = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", EVERY_PAGE, ids=str)
def test_pages_are_plain_text(page: Path) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", page.read_text())


@pytest.mark.parametrize("page", EVERY_PAGE, ids=str)
def test_links_between_pages_have_targets(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_command_line_page_names_every_command() -> None:
    assert set(re.findall(r"^\| \[`([\w-]+)`\]", COMMAND_LINE, re.MULTILINE)) == set(
        commands.program.commands
    )
    for option in (option for each in send.params for option in each.opts if option.startswith("--")):
        assert re.search(rf"{option}\b", COMMAND_LINE), option


def test_pages_use_only_existing_commands_and_options() -> None:
    used = 0
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text().replace("\\\n", " ")
        blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
        inline = re.findall(r"`(aioproducer [^`]+)`", text)
        for line in [*re.findall(r"^(?:\.venv/bin/)?(aioproducer .*)", blocks, re.MULTILINE), *inline]:
            _, name, *words = line.split()
            if name.startswith("-") or name == "COMMAND":
                continue  # options of all commands
            command: Any = commands.program.commands.get(name)
            assert command, f"{page.name}: {line}"
            command = getattr(command, "commands", {}).get(words[0] if words else "", command)
            known = {option for each in command.params for option in each.opts + each.secondary_opts}
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert options <= known, f"{page.name}: {line}: {options - known}"
            used += 1
    assert used > 20


def test_testing_page_names_requests_and_arguments() -> None:
    (requests,) = re.findall(r"`request` is (.*?)\. The rule", TESTING, re.DOTALL)
    assert set(re.findall(r'"(\w+)"', requests)) == {api.name for api in APIS.values()}
    table = TESTING.split("| argument of `Cluster` ")[1].split("\n\n")[0]
    _, *arguments = inspect.signature(Cluster.__init__).parameters
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == arguments


def public_methods(kind: type) -> set[str]:
    return {name for each in kind.__mro__[:-1] for name in vars(each) if not name.startswith("_")}


def test_testing_page_names_methods_of_cluster_and_rule() -> None:
    for_the_broker = {"is_spent", "only_counts", "covers", "applies_to", "hit"}
    assert public_methods(ThreadedCluster) | {"message_max_bytes"} == public_methods(Cluster)
    for name in public_methods(Cluster) | public_methods(Rule) - for_the_broker:
        assert re.search(rf"`(await )?{name}\b", TESTING), name


def test_metrics_page_lists_metrics_as_the_expositions() -> None:
    listed: dict[str, dict[str, tuple[str, ...]]] = {}
    part: dict[str, tuple[str, ...]] = {}
    for line in METRICS_PAGE.split("## All metrics")[1].splitlines():
        if heading := re.match(r"### `metrics\(\)\[\"(\w+)\"\]", line):
            part = listed.setdefault(heading[1], {})
        elif row := re.match(r"\| `(\w+)` \| (.*) \| (.*) \| (.*) \|", line):
            part[row[1]] = row.groups()[1:]
    assert listed == {
        part: {
            key: (
                "none" if metric.kafka is None else f"`{metric.kafka or key.replace('_', '-')}`",
                metric.meaning,
                metric.unit or "none",
            )
            for key, metric in metrics.items()
        }
        for part, metrics in METRICS.items()
    }


def test_dashboard_shows_existing_metrics() -> None:
    dashboard = json.loads((ROOT / "examples/grafana/aioproducer.json").read_text())
    exposed = {
        metric.name + "_total" * (metric.type == "counter") for metric in ProducerCollector().describe()
    }
    panels = dashboard["panels"]
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == [
        "Throughput",
        "Latency",
        "Errors and retries",
        "Memory",
        "Connections",
    ]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels), "none lies on another"
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    assert variables == {"datasource", "client_id", "topic"}
    queries = [each["definition"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    for panel in panels:
        if panel["type"] != "row":
            queries += [target["expr"] for target in panel["targets"]]
            assert panel["datasource"]["uid"] == "${datasource}"
    for query in queries:
        assert set(re.findall(r"kafka_\w+", query)) <= exposed
        assert re.findall(r"kafka_\w+", query)
        assert set(re.findall(r"\$(\w+)", query)) <= variables | {"__rate_interval"}
        assert query.count("(") == query.count(")")
        for name, interval in re.findall(r"(kafka_\w+)\{[^}]*\}(\[)?", query):
            assert bool(interval) == name.endswith("_total"), "the rate of counters, and of nothing else"


def logged(source: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the name of each event that is logged in *source*, and its level, or "log" if the level depends."""
    for node in ast.walk(source):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="log"),
                args=[ast.Name(id="log"), level, _, ast.Constant(value=text), *_],
            ):
                yield str(text).partition(" ")[0], level.attr if isinstance(level, ast.Attribute) else "log"
            case ast.Call(func=ast.Attribute(attr="over"), args=[_, _, ast.Constant(value=text), *_]):
                yield str(text).partition(" ")[0], "INFO"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=method), args=arguments):
                if method in {"debug", "info", "warning", "error", "exception", "log"}:
                    text = next(each.value for each in arguments if isinstance(each, ast.Constant))
                    yield str(text).partition(" ")[0], method


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_pages_name_loggers_without_private_packages(page: Path) -> None:
    assert "aioproducer._" not in page.read_text()


def test_logging_page_lists_every_event_with_its_level() -> None:
    page = (ROOT / "docs/reference/logging.md").read_text()
    listed = {
        event: level.strip()
        for events, level in re.findall(r"^\| (`[^|]+`) \|([^|]+)\|", page, re.MULTILINE)
        for event in re.findall(r"`([\w.]+)`", events)
    }
    in_source = {
        event: method
        for path in (ROOT / "aioproducer").rglob("*.py")
        for event, method in logged(ast.parse(path.read_text()))
    }
    assert listed.keys() == in_source.keys()
    for event, method in in_source.items():
        level = {"exception": "ERROR", "log": "WARNING"}.get(method, method.upper())
        assert level in listed[event], event


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
OF_TRANSACTIONS = {
    errors.CommitFailed,
    errors.TransactionAborted,
    errors.TransactionLost,
    errors.TransactionOutcomeUnknown,
    errors.TransactionStateError,
    errors.TransactionTimeout,
}
ABORTABLE = {kind for kind in OF_TRANSACTIONS if kind.abortable}
NEVER_RAISED_BY_A_SEND = {ConfigError, *OF_TRANSACTIONS}
SAID_OF: dict[type, str] = {
    outcomes.Retry: "yes",
    outcomes.Renumber: "yes, under a new sequence",
    outcomes.Split: "yes, in smaller batches",
    outcomes.FailRecords: "yes, without the invalid records",
    outcomes.Complete: "counts as delivered",
    outcomes.Fail: "no",
}


def test_error_table_has_each_error_once() -> None:
    named = [name for named, *_ in cells_of_errors() for name in re.findall(r"`(\w+)`", named)]
    public = {found for name in errors.__all__ if isinstance(found := getattr(errors, name), type)}
    assert len(named) == len(set(named))
    assert set(ERRORS) == public - NEVER_RAISED_BY_A_SEND | {TypeError, ValueError}


def test_transaction_errors_have_a_table_with_their_bases() -> None:
    table = RELIABILITY.split("Errors of transactions occur only with")[1].split("## ")[0]
    rows = re.findall(r"^\| `(\w+)`([^|]*)\|", table, re.MULTILINE)
    assert {error_class(name) for name, _ in rows} == OF_TRANSACTIONS
    for name, rest in rows:
        kind = error_class(name)
        assert ("abortable" in rest) == (kind in ABORTABLE)
        assert {error_class(each) for each in re.findall(r"`(\w+)`", rest)} == {
            each for each in (RuntimeError, TimeoutError) if issubclass(kind, each)
        }


@pytest.mark.parametrize("kind", BROKER_ERRORS)
def test_error_table_shows_the_codes_of_each_error(kind: type[BrokerError]) -> None:
    facts = outcomes.BatchFacts(
        records=2,
        idempotent=True,
        oldest=True,
        in_doubt=False,
        confirmed=False,
        half_of_possibly_persisted=False,
        refused_without_proof=False,
        last_attempt=False,
    )
    retried, persisted, _, _ = ERRORS[kind]
    assert retried == SAID_OF[type(outcomes.decide(kind("no"), facts, {0: "bad"}))]
    if kind is not DuplicateSequenceNumber:
        assert persisted == ("no" if kind.definitely_refused else "maybe")


@pytest.mark.parametrize("kind", ERRORS)
def test_error_table_marks_retriable_errors(
    kind: type[Exception],
) -> None:
    *_, said, advice = ERRORS[kind]
    retriable = getattr(kind, "retriable", False)
    assert advice.startswith("retry") == retriable
    if kind is SendManyError:
        assert said == "if any of the errors is"
    else:
        assert said == ("yes" if retriable else "no")


def test_promises_name_existing_tests() -> None:
    promises = RELIABILITY.split("## Promises")[1].split("## ")[0]
    for path, name in re.findall(r"`(tests/[\w./]+)(?:::(\w+))?`", promises):
        assert name in (ROOT / path).read_text(), f"{path} has no {name}"
    judges = [ROOT / "tests/checker.py", *(ROOT / "tests/scenarios/faults").glob("*.py")]
    words_of_the_checkers = "".join(path.read_text() for path in judges)
    shown_by = [row.split("|")[4] for row in promises.splitlines() if row.startswith("| R")]
    assert len(shown_by) == 24
    for words in re.findall(r"\*([^*]+)\*", "".join(shown_by)):
        assert f'"{words}' in words_of_the_checkers, f"the checkers do not report: {words}"


def test_client_table_has_the_measured_faults() -> None:
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
