"""Mutants of the core, by mutmut: small changes, one at a time, each of which a test has to notice.

A module's mutants are to be killed by its own unit tests, and by the property tests of its floor. Whoever survives is
explained in `survivors.md`, or this fails; so it does for an explanation that nobody needs any more.

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
}
"""The modules, the smallest and purest first, each with the property tests that are about it.

mutmut changes functions, and no properties: `batching/batch_state` has neither others nor mutants.
"""
UNEXPLAINED: Final[Mapping[str, tuple[str, ...]]] = {
    "_core/transactions/transaction_manager": TRANSACTION,
    "_core/transactions/transaction_types": ("test_prepared_transaction",),
    "_core/transactions/transaction_requests": TRANSACTION,
    "_core/transactions/transaction_records": (),
    "_core/transactions/producer_transactions": TRANSACTION,
    "_core/transactions/coordinator": (),
}
"""Modules of which nobody has looked at all survivors yet: they are run when they are named."""
NAMED: Final = {**CORE, **UNEXPLAINED}


class Change(NamedTuple):
    """The change of a mutant without its line number, which changes with every edit of the module."""

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


class Mutant(NamedTuple):
    name: str
    status: str
    """mutmut's word: killed, timeout, survived, …"""


def explained() -> dict[str, list[Change]]:
    """Return the changes that `survivors.md` explains, by module."""
    found: dict[str, list[Change]] = {}
    for section in re.split(r"^## ", SURVIVORS.read_text(), flags=re.MULTILINE)[1:]:
        module = section.partition("\n")[0].strip("` ")
        found[module] = [Change.of(each) for each in re.findall(r"```diff\n(.*?)```", section, re.DOTALL)]
    return found


def tests_of(module: str) -> Iterator[str]:
    """Yield the paths of the tests that are to kill the mutants of *module*."""
    folder, _, name = module.rpartition("/")
    longer = tuple(f"test_{path.stem}" for path in ROOT.glob(f"aioproducer/{folder}/{name}_*.py"))
    for path in sorted(ROOT.glob(f"tests/unit/{folder}/test_{name}*.py")):
        if f"{path.stem}_".startswith(f"test_{name}_") and not path.stem.startswith(longer):
            yield str(path.relative_to(ROOT))
    yield from (f"tests/property/{each}.py" for each in NAMED[module])


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
    """Let mutmut find everything in a folder of its own, with a configuration for *module* alone."""
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
        # the words of what cannot happen; how a zip is told that it need not look
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
        sys.exit(f"mutmut has failed on {module}:\n{spinner.sub('', said.stdout)}")
    return found


def check(module: str, known: list[Change]) -> bool:
    """Print the results of the mutants of *module*, and return True if they suffice."""
    found = mutants(module)
    left = known.copy()
    unexplained = []
    killed = 0
    for mutant in found:
        if mutant.status in ("killed", "timeout"):
            killed += 1
            continue
        diff = mutmut("show", mutant.name).stdout
        if (change := Change.of(diff)) in left:
            left.remove(change)
        else:
            unexplained.append(diff)
    survivors = len(found) - killed
    say(f"{module}: {len(found)} mutants, {killed} killed, {survivors - len(unexplained)} explained")
    for diff in unexplained:
        say(f"survives, unexplained:\n{diff}")
    for change in left:
        say(f"explained in {SURVIVORS.name}, and no survivor: {change}")
    few = killed < KILLED_AT_LEAST * len(found)
    if few:
        say(f"less than {KILLED_AT_LEAST:.0%} are killed")
    return not (unexplained or left or few)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Return 1 if a module in one of the paths of *arguments* is not good enough; without any, of the whole core."""
    wanted = [f"{each.removeprefix('aioproducer/').removesuffix('.py').rstrip('/')}/" for each in arguments]
    for each in wanted:
        if not any(f"{module}/".startswith(each) for module in NAMED):
            sys.exit(f"{each} has no module of the core, which is: {', '.join(NAMED)}")
    chosen = [each for each in NAMED if f"{each}/".startswith(tuple(wanted))] if wanted else [*CORE]
    known = explained()
    bad = [each for each in chosen if not check(each, known.get(f"aioproducer/{each}.py", []))]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
