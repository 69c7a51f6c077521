"""Configuration files of the hosting service and of pre-commit: they parse, and their targets exist."""

from __future__ import annotations

import re
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packaging.environments import ROOT, run
from tests.packaging.licences import PYTHONS

HOSTING = ROOT / ".github"
ZIZMOR = ROOT / ".cache/zizmor/bin/zizmor"
WORKFLOWS = sorted(HOSTING.glob("workflows/*.yml"))
FORMS = sorted(HOSTING.glob("ISSUE_TEMPLATE/*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")
TARGETS = re.findall(r"^([a-z][\w.%-]*):", MAKEFILE, re.MULTILINE)

pytestmark = pytest.mark.skipif(not HOSTING.exists(), reason="an sdist has none of it")


def name(path: Path) -> str:
    return path.name


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def jobs(workflow: str) -> dict[str, Any]:
    found: dict[str, Any] = load(HOSTING / "workflows" / workflow)["jobs"]
    return found


def runs(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def is_target(wanted: str) -> bool:
    return any(fnmatch(wanted, target.replace("%", "?*")) for target in TARGETS)


def test_unknown_make_target_is_recognised() -> None:
    assert is_target("test")
    assert is_target("test-python-3.12")
    assert not is_target("tests")
    assert not is_target("test-python-")


@pytest.mark.parametrize("path", sorted(HOSTING.rglob("*.*")), ids=name)
def test_every_target_of_make_that_is_named_is_there(path: Path) -> None:
    for target in re.findall(r"(?:run: |`)make ([^\s`]+)", EXPRESSION.sub("0", path.read_text())):
        assert is_target(target), target


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_workflow_runs_only_make_and_has_read_permissions(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        if job in (workflow["jobs"].get("wheels"), workflow["jobs"].get("other-systems")):
            continue
        assert job["runs-on"] == "ubuntu-latest"
        for command in runs(job):
            assert re.fullmatch(r"make \S+|python\S+ --version", command), command


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_commands_of_a_workflow_expand_no_template(path: Path) -> None:
    """A template would be expanded before the shell parses the command."""
    for job in load(path)["jobs"].values():
        assert not any(EXPRESSION.search(command) for command in runs(job))


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_workflow_pins_actions_by_commit_with_version(path: Path) -> None:
    uses = re.findall(r"uses: (.*)", path.read_text())
    assert len(uses) == path.read_text().count("uses:") > 0
    for each in uses:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", each), each


def test_release_is_built_from_files_with_known_hashes() -> None:
    requirements = (ROOT / "tests/packaging/release-requirements.txt").read_text()
    pinned = re.findall(r"^(?!#)\S.*(?:\n +.*)+", requirements, re.MULTILINE)
    assert all(re.match(r"[\w.-]+==\S+ \\\n +--hash=sha256:[0-9a-f]{64}", each) for each in pinned)
    names = {each.partition("==")[0] for each in pinned}
    assert {"build", "hatchling", "setuptools"} <= names
    recipe = MAKEFILE.split("\nrelease-check:")[1].split("\n\n")[0]
    assert "$(BIN)" not in recipe
    assert "--no-isolation" in recipe
    assert (
        "--require-hashes --only-binary :all: -r $<"
        in MAKEFILE.split("\n.cache/release/.ready:")[1].split("\n\n")[0]
    )


def test_ci_runs_the_quick_checks_first_and_then_every_python() -> None:
    ci = jobs("ci.yml")
    assert runs(ci["check"]) == ["make check"]
    assert runs(ci["test"]) == ["make test"]
    others = ci["other-pythons"]
    assert runs(others)[-1] == "make test-python-$VERSION"
    assert others["env"] == {"VERSION": "${{ matrix.python }}"}
    assert ci["test"]["needs"] == others["needs"] == "check"
    (python,) = (
        step["with"]["python-version"]
        for step in ci["test"]["steps"]
        if "setup-python" in step.get("uses", "")
    )
    assert (python, *others["strategy"]["matrix"]["python"]) == (*PYTHONS, "3.14t")


def test_ci_runs_other_systems_with_pytest() -> None:
    systems = jobs("ci.yml")["other-systems"]
    assert systems["strategy"]["matrix"]["os"] == ["ubuntu-24.04-arm", "macos-15", "windows-latest"]
    assert runs(systems) == [
        "python -m pip install -c constraints.txt -e .[dev]",
        "python -m pytest -q -n auto tests/unit tests/property tests/scenarios",
    ]


def test_dependabot_updates_actions_and_pinned_build_tools() -> None:
    updates = load(HOSTING / "dependabot.yml")["updates"]
    assert {(each["package-ecosystem"], each["directory"]) for each in updates} == {
        ("github-actions", "/"),
        ("pip", "/tests/packaging"),
    }
    assert list((ROOT / "tests/packaging").glob("*requirements.txt"))


@pytest.mark.skipif(not ZIZMOR.exists(), reason="zizmor is not installed: make workflows")
def test_zizmor_finds_nothing() -> None:
    done = run(str(ZIZMOR), "--offline", "--persona", "pedantic", str(HOSTING))
    assert done.returncode == 0, done.stdout


def test_release_publishes_the_checked_files_with_an_identity() -> None:
    release = jobs("release.yml")
    assert runs(release["build"]) == ["make release-check"]
    dist, notes = (step["with"] for step in release["build"]["steps"][-2:])
    assert f"--outdir {dist['path'].rstrip('/')} " in MAKEFILE
    assert f"tests.packaging.upload .cache/dist {notes['path'].rstrip('/')}\n" in MAKEFILE
    assert dist["include-hidden-files"]
    assert notes["include-hidden-files"]
    # PyPI receives distributions alone
    assert release["publish"]["steps"][0]["with"]["pattern"] == "{dist,wheels-*}"
    assert release["publish"]["needs"] == ["build", "wheels"]
    assert release["publish"]["permissions"] == {"id-token": "write"}
    assert "permissions" not in release["build"]


def test_release_has_a_wheel_for_every_platform() -> None:
    wheels = jobs("release.yml")["wheels"]
    assert runs(wheels) == [
        "python -m pip install --require-hashes --only-binary :all: -r tests/packaging/wheel-requirements.txt",
        "python -m cibuildwheel --output-dir wheels",
    ]
    pinned = (ROOT / "tests/packaging/wheel-requirements.txt").read_text()
    assert re.search(r"^cibuildwheel==\S+ \\\n +--hash=sha256:", pinned, re.MULTILINE)
    upload = wheels["steps"][-1]["with"]
    assert upload["path"] == "wheels/"
    assert wheels["strategy"]["matrix"]["os"] == [
        "ubuntu-latest",  # x86_64
        "ubuntu-24.04-arm",
        "macos-15",  # arm64
        "macos-15-intel",
        "windows-latest",
    ]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert settings["test-command"] == "python {project}/tests/packaging/round_trip.py accelerated"
    assert (ROOT / "tests/packaging/round_trip.py").exists()
    assert settings["build"] == "cp311-*"
    skipped = settings["skip"].split()
    for platform in ("manylinux_x86_64", "musllinux_aarch64", "macosx_arm64", "win_amd64"):
        assert not any(fnmatch(f"cp311-{platform}", each) for each in skipped)
    assert all(
        any(fnmatch(f"cp311-{each}", skip) for skip in skipped) for each in ("manylinux_i686", "win32")
    )


@pytest.mark.parametrize("path", FORMS, ids=name)
def test_issue_form_has_a_required_field(path: Path) -> None:
    form = load(path)
    assert {"name", "description", "body"} <= form.keys()
    asked = [each for each in form["body"] if each["type"] != "markdown"]
    assert {each["type"] for each in asked} <= {"input", "textarea"}
    assert len({each["id"] for each in asked}) == len(asked)
    assert all(each["attributes"]["label"] for each in asked)
    assert any(each.get("validations", {}).get("required") for each in asked)


def test_bug_form_asks_for_versions_options_and_log() -> None:
    ids = {each.get("id") for each in load(HOSTING / "ISSUE_TEMPLATE/bug.yml")["body"]}
    assert {"version", "python", "broker", "options", "log"} <= ids


def test_hooks_run_tools_of_the_environment_and_load_nothing() -> None:
    repositories = load(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [each["repo"] for each in repositories] == ["local"]
    for hook in repositories[0]["hooks"]:
        if hook["id"] == "commit-subject":
            continue
        tool, *_ = hook["entry"].split()
        assert hook["language"] == "system"
        assert Path(tool).parent == Path(".venv/bin")
        assert (Path(sys.executable).parent / Path(tool).name).exists(), tool


@pytest.mark.parametrize(
    ("message", "accepted"),
    [
        ("sender: wake tasks at the end of a read\n\nWhy.\n", True),
        ("fast append, records: grow a batch", True),
        ("Wake tasks at the end of a read\n", False),
        ("sender:wake tasks", False),
        (f"sender: {'w' * 64}\n", True),
        (f"sender: {'w' * 65}\n", False),
        (f"sender: {'w' * 65}\n\nsender: short\n", False),
    ],
)
def test_hook_checks_the_subject_of_a_commit(message: str, *, accepted: bool) -> None:
    hooks = load(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    [hook] = [each for each in hooks if each["id"] == "commit-subject"]
    assert (hook["language"], hook["stages"]) == ("pygrep", ["commit-msg"])
    assert hook["args"] == ["--negate", "--multiline"]  # a message without a match is refused
    assert (re.search(hook["entry"], message, re.MULTILINE) is not None) is accepted
