"""Mutation tests of the core with mutmut: each mutant has one small change, and a test has to fail.

A module's mutants run the module's unit tests and the property tests of its package. The rules of
EQUIVALENT or an entry of `survivors.md` explain each surviving mutant. The run fails on a survivor without an
explanation, and on an explanation without a survivor.

    python -m tests.mutants [path of a module, or a folder of aioproducer, …]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
SURVIVORS: Final = Path(__file__).with_name("survivors.md")
AT_WORK: Final = ROOT / ".cache/mutants"
KILLED: Final = ("killed", "timeout", "segfault", "check was interrupted by user")
"""Statuses of killed mutants; a test with its own KeyboardInterrupt may interrupt a check."""
KILLED_AT_LEAST: Final = 0.95

BATCHING: Final = ("test_batching_machine",)
CONNECTION: Final = ("test_connection_machine", "test_connection_splits")
TRANSACTION: Final = ("test_transaction_machine",)
CORE: Final[Mapping[str, tuple[str, ...]]] = {
    "_core/clock": (),
    "_core/idempotence": ("test_sequences", "test_persistence_machine"),
    "_core/sender/outcomes": (),
    "_core/records/record_batch": ("test_records_roundtrip",),
    "_core/batching/batch": BATCHING,
    "_core/batching/partition_queue": BATCHING,
    "_core/net/in_flight": ("test_framing", *CONNECTION),
    "_core/net/handshake": CONNECTION,
    "_core/net/connection_protocol": CONNECTION,
    "_core/batching/admission": (),
    "_core/protocol/schema": (),
    "_core/batching/schedule": BATCHING,
    "_core/batching/waiters": BATCHING,
    "_core/batching/completion": BATCHING,
    "_core/batching/bulk": BATCHING,
    "_core/batching/topic": BATCHING,
    "_core/batching/accumulator": BATCHING,
    "_core/sender/producer_id": (),
    "_core/sender/requests": BATCHING,
    "_core/sender/loop": (),
    "_core/transactions/transaction_manager": TRANSACTION,
    "_core/transactions/transaction_types": ("test_prepared_transaction",),
    "_core/transactions/transaction_requests": TRANSACTION,
    "_core/transactions/transaction_records": (),
    "_core/transactions/producer_transactions": TRANSACTION,
    "_core/transactions/coordinator": (),
}
"""Modules with mutants, each with the property tests of its state machine or codec.

mutmut changes functions, and no properties: `batching/batch_state` has no mutants.
"""


EQUIVALENT: Final = (
    (r"= ?(False|None)\b", "= flag"),  # conditions test only the truth of a flag
    (r'\] = (None|"")$', "] = value"),  # a dict as an ordered set: no code reads the values
    (r", (\w+=\[\])?\)", ", )"),  # an empty list is the default of a message's field
    (r'cast\((None|"[^"]*"),', "cast(type,"),  # `cast` returns its second argument
    (r"^(deque\(.*), (maxlen=\w+)?\)", r"\1)"),  # a deque that only consumes an iterator, and is dropped
    (r"sys\.version_info >=? \(\d+, \d+\)", "sys.version_info"),  # tests run on one version of Python
)
"""Parts of a line that mutmut changes without an effect: patterns, each with the text that stands for all matches."""


class Change(NamedTuple):
    """Change of a mutant without a line number: edits of the module move lines."""

    removed: tuple[str, ...]
    added: tuple[str, ...]

    @classmethod
    def of(cls, diff: str) -> Change:
        """Return the change in *diff*."""
        lines = [each for each in diff.splitlines() if not each.startswith(("---", "+++"))]
        removed, added = (
            tuple(each[1:].strip() for each in lines if each.startswith(sign)) for sign in ("-", "+")
        )
        return cls(removed, added)

    @property
    def is_equivalent(self) -> bool:
        """True if a rule of EQUIVALENT makes both sides equal."""
        return any(
            [re.sub(pattern, text, line) for line in self.removed]
            == [re.sub(pattern, text, line) for line in self.added]
            for pattern, text in EQUIVALENT
        )


class Mutant(NamedTuple):
    name: str
    status: str
    """Status that mutmut prints: killed, timeout, survived, …"""


def explanations() -> dict[str, list[Change]]:
    """Return the changes explained in `survivors.md`, by module."""
    found: dict[str, list[Change]] = {}
    for section in re.split(r"^## ", SURVIVORS.read_text(), flags=re.MULTILINE)[1:]:
        module = section.partition("\n")[0].strip("` ")
        found[module] = [Change.of(each) for each in re.findall(r"```diff\n(.*?)```", section, re.DOTALL)]
    return found


def tests_of(module: str) -> Iterator[str]:
    """Yield the paths of the tests that run on each mutant of *module*."""
    folder, _, name = module.rpartition("/")
    longer = tuple(f"test_{path.stem}" for path in ROOT.glob(f"aioproducer/{folder}/{name}_*.py"))
    for path in sorted(ROOT.glob(f"tests/unit/{folder}/test_{name}*.py")):
        if f"{path.stem}_".startswith(f"test_{name}_") and not path.stem.startswith(longer):
            yield str(path.relative_to(ROOT))
    yield from (f"tests/property/{each}.py" for each in CORE[module])


def mutmut(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "mutmut", *arguments),
        cwd=AT_WORK,
        env={**os.environ, "HYPOTHESIS_PROFILE": "mutants"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def prepare(module: str) -> None:
    """Create the working folder of mutmut, with a configuration for *module* alone."""
    shutil.rmtree(AT_WORK, ignore_errors=True)
    AT_WORK.mkdir(parents=True)
    for each in ("aioproducer", "docs", "tests"):
        (AT_WORK / each).symlink_to(ROOT / each)
    (AT_WORK / "pyproject.toml").write_text(
        (ROOT / "pyproject.toml").read_text()
        + "\n[tool.mutmut]\n"
        + 'source_paths = ["aioproducer"]\n'
        + 'also_copy = ["docs"]\n'
        + f'only_mutate = ["aioproducer/{module}.py"]\n'
        + f"pytest_add_cli_args_test_selection = {list(tests_of(module))}\n"
        + 'pytest_add_cli_args = ["-p", "tests.mutants.unit_first", "-p", "no:cacheprovider"]\n'
        # messages of impossible states; zip's check of equal lengths
        + 'do_not_mutate_patterns = ["raise AssertionError", ", strict="]\n'
        + "timeout_multiplier = 4.0\n"
        + "use_git_change_detection = false\n"
    )


def mutants(module: str) -> list[Mutant]:
    """Make the mutants of *module*, run the tests on each, and return their results."""
    prepare(module)
    said = mutmut("run", "--max-children", "1")
    results = mutmut("results", "--all", "true").stdout
    found = [Mutant(*each) for each in re.findall(r"^ +(\S+__mutmut_\d+): (.+)$", results, re.MULTILINE)]
    if said.returncode or any(each.status in ("not checked", "suspicious") for each in found):
        spinner = re.compile(r"^\S (Generating mutants|Running stats) *\n", re.MULTILINE)
        sys.exit(f"mutmut failed on {module}:\n{spinner.sub('', said.stdout)}")
    return found


def check(module: str, known: list[Change]) -> bool:
    """Print the results of the mutants of *module*; return True if no survivor and no explanation is left over."""
    found = mutants(module)
    left = known.copy()
    unexplained = []
    killed = equivalent = 0
    for mutant in found:
        if mutant.status in KILLED:
            killed += 1
            continue
        diff = mutmut("show", mutant.name).stdout
        change = Change.of(diff)
        if change.is_equivalent:
            equivalent += 1
        elif change in left:
            left.remove(change)
        else:
            unexplained.append(diff)
    explained = len(found) - equivalent - killed - len(unexplained)
    say(f"{module}: {len(found)} mutants, {killed} killed, {equivalent} equivalent, {explained} explained")
    for diff in unexplained:
        say(f"survives without an explanation:\n{diff}")
    for change in left:
        say(f"explained in {SURVIVORS.name}, but not a survivor: {change}")
    few = killed < KILLED_AT_LEAST * (len(found) - equivalent)
    if few:
        say(f"fewer than {KILLED_AT_LEAST:.0%} are killed")
    return not (unexplained or left or few)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Check the modules below the paths *arguments*, by default all of CORE. Return 1 if a module fails."""
    wanted = [f"{each.removeprefix('aioproducer/').removesuffix('.py').rstrip('/')}/" for each in arguments]
    for each in wanted:
        if not any(f"{module}/".startswith(each) for module in CORE):
            sys.exit(f"{each} contains no module with mutants; expected one of: {', '.join(CORE)}")
    chosen = [each for each in CORE if not wanted or f"{each}/".startswith(tuple(wanted))]
    known = explanations()
    bad = [each for each in chosen if not check(each, known.get(f"aioproducer/{each}.py", []))]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
