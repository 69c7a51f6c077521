"""Rules beyond import-linter: readable files, one entry per inner package, one owner per batch."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from aioproducer._core.acceleration import PythonBatchFields
from aioproducer._core.batching.batch import Batch
from tests import sanitize

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "aioproducer"
CORE = PACKAGE / "_core"
ACCELERATOR = sorted((*CORE.glob("_c/*.c"), *CORE.glob("_c/*.h")))
LINES_IN_ONE_SITTING = 500
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
TESTS = sorted((ROOT / "tests").rglob("*.py"))
BATCH = PACKAGE / "_core/batching/batch.py"
BATCHES = {
    *("batch", "half", "open", "oldest_unsettled", "other", "parent", "part", "rest", "successor"),
    *("batches", "in_flight", "parts", "retrying", "successors"),
}
"""What a batch, or a line of them, is called."""
FIELDS = (*Batch.__slots__, *PythonBatchFields.__slots__)
APPEND_PATH = {
    ("aioproducer/_core/batching/accumulator.py", each, field)
    for each in ("append", "append_to_open")
    for field in ("held", "size")
} | {("aioproducer/_core/batching/accumulator.py", "append", "plain_kind")}
"""These add records to an open batch without a call for each: what every record passes is spared one."""
NAMED_FIRST = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.read_text(encoding="utf-8").strip()
    and path.relative_to(PACKAGE).parts[0] != "testing"
    and not path.is_relative_to(CORE / "net")
    and not path.is_relative_to(CORE / "protocol")
]
ACCUMULATOR = PACKAGE / "_core/batching/accumulator.py"
COUNTERS = {"closed_for", "finishing", "flushing", "pending_calls", "unresolved"}
MUTATORS = {"clear", "pop", "popitem", "setdefault", "update"}
INNER_DOORS = sorted(path for path in PACKAGE.rglob("__init__.py") if path.parent not in PUBLIC_PACKAGES)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_package_holds_only_its_source() -> None:
    """Everything in it is installed: no backups, no notes, no data."""
    strangers = [
        name(path)
        for path in PACKAGE.rglob("*")
        if "__pycache__" not in path.parts
        and not (path.is_dir() or path.suffix == ".py" or path.name == "py.typed")
        and path not in ACCELERATOR
        and not (path.match("_accelerator.*") and path.suffix in {".so", ".pyd"})  # built where it is
    ]
    assert strangers == []


@pytest.mark.parametrize("path", [*SOURCES, *TESTS, *ACCELERATOR], ids=name)
def test_files_have_at_most_500_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_IN_ONE_SITTING


@pytest.mark.parametrize("path", NAMED_FIRST, ids=name)
def test_modules_begin_with_a_docstring(path: Path) -> None:
    """Docstrings name their subject; "What happens when …" puts it at the end of the sentence."""
    first = ast.get_docstring(parsed(path)) or ""
    assert first.split()[0] not in {"What", "Who", "Whether", "How", "Where", "When", "Which", "From"}


@pytest.mark.parametrize("path", INNER_DOORS, ids=name)
def test_names_are_imported_from_their_defining_module(path: Path) -> None:
    """An inner `__init__` that re-exports would be a second way to the same name, and a source of cycles."""
    assert path.read_text(encoding="utf-8").strip() == ""


def test_sanitizers_run_tests_that_exist() -> None:
    assert [each for each in sanitize.TESTS if not (ROOT / each).exists()] == []


def test_file_names_are_unique() -> None:
    """Only `__init__`, `types`, `partitioner` (the second is aiokafka's) and `audit` (the second runs on Spark) occur twice."""
    for broker in (False, True):
        named = Counter(
            path.stem for path in PACKAGE.rglob("*.py") if (PACKAGE / "testing" in path.parents) is broker
        )
        assert {stem for stem, files in named.items() if files > 1} <= {
            "__init__",
            "audit",
            "types",
            "partitioner",
        }


def test_producer_logs_through_its_steps() -> None:
    """A log handler inside a step may change a list under a loop, and its exceptions may end a task."""
    of_their_own = {"cli", "compat", "contrib", "spark", "testing"}
    strangers = [
        name(path)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in of_their_own
        and path != CORE / "steps.py"
        and "getLogger" in path.read_text(encoding="utf-8")
    ]
    assert strangers == []


def test_accumulator_alone_writes_its_counters() -> None:
    """Its counters change only in `enter`, `arrived`, `leave`, `hold`, `resolved` and `release`."""
    found = {
        (name(path), field)
        for path in SOURCES
        if PACKAGE in path.parents and path != ACCUMULATOR
        for field in written_counters(parsed(path))
    }
    assert found == {("aioproducer/_core/batching/topic.py", "pending_calls")}, "a topic begins with none"


@pytest.mark.parametrize(
    "statement",
    [
        "accumulator.pending_calls = {}",
        "self._accumulator.unresolved[batch] = None",
        "del self.accumulator.unresolved[batch]",
        "self._accumulator.unresolved.pop(batch, None)",
        "self.memory.free -= 1",
    ],
)
def test_write_to_a_counter_is_detected(statement: str) -> None:
    assert list(written_counters(ast.parse(statement)))


def written_counters(tree: ast.AST) -> Iterator[str]:
    """Yield which counters of the accumulator are assigned, or changed in place."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=field, ctx=ast.Store() | ast.Del()) if field in COUNTERS:
                yield field
            case ast.Attribute(value=ast.Attribute(attr="memory"), attr="free", ctx=ast.Store()):
                yield "memory.free"
            case ast.Subscript(value=ast.Attribute(attr="unresolved"), ctx=ast.Store() | ast.Del()):
                yield "unresolved"
            case ast.Attribute(value=ast.Attribute(attr="unresolved"), attr=method) if method in MUTATORS:
                yield "unresolved"


def test_batch_alone_writes_its_fields() -> None:
    """A batch changes only by its methods, so each field has one place for mistakes."""
    found = {
        (name(path), function, field)
        for path in SOURCES
        if PACKAGE in path.parents and path != BATCH
        for function, field in written_to_batches(parsed(path))
    }
    assert found == APPEND_PATH


@pytest.mark.parametrize(
    ("statement", "field"),
    [
        ("batch.state = to", "state"),
        ("part.size -= 1", "size"),
        ("queue.open.ready = True", "ready"),
        ("self.in_flight[0].deadline: float = 1.0", "deadline"),
        ("a, (self.retrying[0].sequence, b) = c", "sequence"),
        ("for batch.order in orders: pass", "order"),
        ("del rest.topic_partition", "topic_partition"),
        ("whatever.encoded_sequence = None", "encoded_sequence"),
        ("one.persistence = other.persistence = None", "persistence"),
    ],
)
def test_write_to_a_field_of_a_batch_is_detected(statement: str, field: str) -> None:
    source = f"class Somebody:\n    async def act(self):\n        {statement}\n"
    assert ("act", field) in written_to_batches(ast.parse(source))


@pytest.mark.parametrize(
    "statement", ["queue.open = batch", "self.size = 1", "node.deadline = batch.deadline"]
)
def test_write_to_another_object_is_accepted(statement: str) -> None:
    assert list(written_to_batches(ast.parse(statement))) == []


def written_to_batches(tree: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """Yield which fields of batches are assigned, augmented or deleted, after the function that does."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            of_batches_alone = node.attr in fields_of_batches_alone()
            if of_batches_alone or (node.attr in FIELDS and called(node.value) in BATCHES):
                yield inside, node.attr
        yield from written_to_batches(node, inside)


def called(expression: ast.expr) -> str:
    """Return the last name in *expression*."""
    match expression:
        case ast.Name(id=last) | ast.Attribute(attr=last):
            return last
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return called(inner)
        case _:
            return ""


@cache
def fields_of_batches_alone() -> frozenset[str]:
    """Return the fields of a batch that no other class of the package has one of the same name as."""
    others = {
        field
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and (path, node.name) != (BATCH, Batch.__name__)
        for field in fields_of(node)
    }
    return frozenset(FIELDS) - others


def fields_of(of: ast.ClassDef) -> Iterator[str]:
    """Yield the names that the class *of* declares in its body or assigns to `self`."""
    for declared in of.body:
        match declared:
            case ast.AnnAssign(target=ast.Name(id=field)) | ast.FunctionDef(name=field):
                yield field
    for node in ast.walk(of):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=field, ctx=ast.Store()):
                yield field


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


POSIX_ONLY = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
POSIX_CALLS = {
    *(
        "add_signal_handler",
        "create_unix_connection",
        "create_unix_server",
        "fork",
        "getuid",
        "mkfifo",
        "setsid",
    ),
    *("remove_signal_handler", "uname"),
}
"""Methods of `os` and of event loops that not every system has."""


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=name)
def test_functions_missing_on_macos_or_windows_are_unused(path: Path) -> None:
    """An import of it has to be behind a look at `sys.platform`; a call can be spared."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "sys.platform" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if node not in guarded
        and (
            (isinstance(node, ast.Import) and POSIX_ONLY & {each.name for each in node.names})
            or (isinstance(node, ast.ImportFrom) and node.module in POSIX_ONLY)
            or (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in POSIX_CALLS
            )
        )
    ]
    assert found == []
