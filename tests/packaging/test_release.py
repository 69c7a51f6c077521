"""Refusals of `make release-check`."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from readme_renderer import markdown

from aioproducer import __version__
from tests.packaging import release
from tests.packaging.conftest import Distributions

METADATA = """\
Metadata-Version: 2.4
Name: aioproducer
Version: 1.2.3
Description-Content-Type: text/markdown

# aioproducer

[here](#use-it) and [there](https://kafka.apache.org)
"""
CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.3 - 2030-12-31\n\n### Added\n\n## 1.2.2\n"
PROJECT = '[project.urls]\nHomepage = "https://example.org"\n'


def in_git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgSign=false")
    subprocess.run(("git", *identity, *arguments), cwd=root, check=True, capture_output=True)


def build(folder: Path, metadata: str = METADATA, version: str = "1.2.3") -> Path:
    """Make a wheel and an sdist that have *metadata* and nothing else."""
    folder.mkdir(exist_ok=True)
    with ZipFile(folder / f"aioproducer-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"aioproducer-{version}.dist-info/METADATA", metadata)
    with tarfile.open(folder / f"aioproducer-{version}.tar.gz", "w:gz") as sdist:
        info = tarfile.TarInfo(f"aioproducer-{version}/PKG-INFO")
        info.size = len(metadata.encode())
        sdist.addfile(info, BytesIO(metadata.encode()))
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Give a checkout that can be released."""
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    in_git(root, "init")
    in_git(root, "add", "--all")
    in_git(root, "commit", "--message", "All of it")
    return root


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """Give the folder of a wheel and an sdist that can be released."""
    return build(tmp_path / "dist")


def test_complete_checkout_has_no_complaints(
    checkout: Path, dist: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [*release.complaints(checkout, dist, "1.2.3")] == []
    monkeypatch.setattr(release, "ROOT", checkout)
    monkeypatch.setattr(release, "__version__", "1.2.3")
    release.main(dist)
    assert capsys.readouterr().out.startswith("1.2.3 can be released")


def test_all_complaints_are_printed_at_once(
    checkout: Path, dist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "pyproject.toml").write_text("[project]\n")
    (checkout / "CHANGELOG.md").write_text("# Changelog\n")
    monkeypatch.setattr(release, "ROOT", checkout)
    with pytest.raises(SystemExit) as caught:
        release.main(dist)
    first, *others = str(caught.value.code).splitlines()
    assert first == f"{__version__} cannot be released:"
    assert [
        any(part in each for each in others) for part in ("urls", "no section", "not clean", "should have")
    ] == [True] * 4
    assert len(others) == 4


def test_project_without_urls_has_a_complaint() -> None:
    assert [*release.of_project({"name": "aioproducer"})] == [release.URLS]
    assert [*release.of_project({"urls": {}})] == [release.URLS]
    assert [*release.of_project({"urls": {"Homepage": "https://example.org"}})] == []


@pytest.mark.parametrize(
    "heading", ["## 1.2.3", "## 1.2.3 - soon", "## [1.2.3] - 2030-13-01", "## 1.2.3 - Unreleased"]
)
def test_changelog_section_without_a_date_has_a_complaint(heading: str) -> None:
    (complaint,) = release.of_changelog(f"# Changelog\n\n{heading}\n", "1.2.3")
    assert "has no date" in complaint


@pytest.mark.parametrize("heading", ["## Unreleased", "## 1.2.30 - 2030-12-31", "### 1.2.3 - 2030-12-31"])
def test_section_of_another_version_is_refused(heading: str) -> None:
    (complaint,) = release.of_changelog(f"# Changelog\n\n{heading}\n", "1.2.3")
    assert "no section for 1.2.3" in complaint


@pytest.mark.parametrize("heading", ["## 1.2.3 - 2030-12-31", "## [1.2.3] - 2030-12-31"])
def test_changelog_section_with_a_date_has_no_complaint(heading: str) -> None:
    assert [*release.of_changelog(f"# Changelog\n\n{heading}\n", "1.2.3")] == []


@pytest.mark.parametrize("name", ["CHANGELOG.md", "new.py"])
def test_uncommitted_file_is_named(checkout: Path, name: str) -> None:
    (checkout / name).write_text("changed")
    (complaint,) = release.of_checkout(checkout, "1.2.3")
    assert complaint.endswith(f"commit or remove {name}")


@pytest.mark.parametrize(
    ("tags", "fine"),
    [(["v1.2.3"], True), (["v1.2.3", "latest"], True), (["v1.2.4"], False), (["1.2.3"], False)],
)
def test_tag_must_be_that_of_the_version(checkout: Path, tags: list[str], fine: bool) -> None:
    for tag in tags:
        in_git(checkout, "tag", tag)
    assert [f"tagged {tags[0]}: v1.2.3" in each for each in release.of_checkout(checkout, "1.2.3")] == [
        True
    ] * (not fine)


def test_tag_of_another_commit_is_ignored(checkout: Path) -> None:
    in_git(checkout, "tag", "v1.2.2")
    in_git(checkout, "commit", "--allow-empty", "--message", "More")
    assert [*release.of_checkout(checkout, "1.2.3")] == []


def test_unpacked_sdist_is_no_checkout(tmp_path: Path) -> None:
    (complaint,) = release.of_checkout(tmp_path, "1.2.3")
    assert "no git checkout" in complaint


def test_distributions_must_be_one_wheel_and_one_sdist(dist: Path) -> None:
    assert [*release.of_distributions(dist, "1.2.3")] == []
    (complaint,) = release.of_distributions(dist, "1.2.4")
    assert "should have aioproducer-1.2.4-py3-none-any.whl" in complaint
    build(dist, version="1.2.2")
    (complaint,) = release.of_distributions(dist, "1.2.3")
    assert "aioproducer-1.2.2.tar.gz" in complaint


def test_complaint_about_metadata_names_its_file(tmp_path: Path) -> None:
    folder = build(tmp_path / "dist", METADATA.replace("text/markdown", "text/plain"))
    assert [each.partition(": ")[0] for each in release.of_distributions(folder, "1.2.3")] == [
        "aioproducer-1.2.3-py3-none-any.whl",
        "aioproducer-1.2.3.tar.gz",
    ]


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("Name: aioproducer\n", "", "name"),
        ("Version: 1.2.3", "Version: one", "version"),
        ("Name: aioproducer", "Name: aioproducer\nRequires-Dist: a >> 1", "requires-dist"),
        ("Description-Content-Type: text/markdown\n", "", "of no type"),
        ("text/markdown", "text/plain", "text/plain"),
        (
            "https://kafka.apache.org",
            "docs/design.md",
            "1 links that lead nowhere on an index, such as docs/design.md",
        ),
        ("[here](#use-it)", "![a figure](a.svg)", "such as a.svg"),
    ],
)
def test_invalid_metadata_has_a_complaint(right: str, wrong: str, told: str) -> None:
    assert [*release.of_metadata(METADATA.encode())] == []
    (complaint,) = release.of_metadata(METADATA.replace(right, wrong).encode())
    assert told in complaint


def test_invalid_readme_has_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "render", lambda _: None)
    (complaint,) = release.of_metadata(METADATA.encode())
    assert "cannot be rendered" in complaint


@pytest.mark.timeout(300)  # builds the distributions if they are missing
def test_built_distributions_have_only_complaints_about_links(
    distributions: Distributions, tmp_path: Path
) -> None:
    for built in (distributions.pure_wheel, distributions.sdist):
        (tmp_path / built.name).symlink_to(built)
    for complaint in release.of_distributions(tmp_path, __version__):
        assert "links that lead nowhere" in complaint
