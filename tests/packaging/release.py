"""All obstacles to a release of this checkout, listed before the upload.

Look: make release-check, which builds into .cache/dist, and then runs: python -m tests.packaging.release .cache/dist
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from packaging.metadata import Metadata
from readme_renderer import markdown

from aioproducer import __version__
from tests.packaging.environments import ROOT

URLS = (
    "pyproject.toml has no [project.urls]: add the public addresses of the project, "
    "at least Homepage, Source, Issues and Changelog"
)
LINK = re.compile(r'(?:href|src)="(?!https?://|mailto:|#)([^"]*)"')
HEADING = re.compile(r"^## \[?(?P<version>\d[^\s\]]*)\]?(?: - (?P<date>\S+))?$", re.MULTILINE)


def of_project(project: Mapping[str, Any]) -> Iterator[str]:
    """Yield missing entries of the table `project` of pyproject.toml."""
    if not project.get("urls"):
        yield URLS


def of_changelog(text: str, version: str) -> Iterator[str]:
    """Yield mistakes in the section of *version*: `## 1.2.3 - 2030-12-31`."""
    for heading in HEADING.finditer(text):
        if heading["version"] == version:
            try:
                date.fromisoformat(heading["date"] or "")
            except ValueError:
                yield f"CHANGELOG.md: {heading[0]!r} has no date, as in '## {version} - 2030-12-31'"
            return
    yield f"CHANGELOG.md has no section for {version}: make '## {version} - (the date)' of what is unreleased"


def of_checkout(root: Path, version: str) -> Iterator[str]:
    """Yield uncommitted files in the checkout at *root*, and tags at its commit other than *version*."""
    if not (root / ".git").exists():
        yield f"{root} is no git checkout"
        return
    changed = git(root, "status", "--porcelain").splitlines()
    if changed:
        yield f"the tree is not clean: commit or remove {', '.join(line[3:] for line in changed)}"
    tags = git(root, "tag", "--points-at", "HEAD").split()
    if tags and f"v{version}" not in tags:
        yield f"aioproducer/version.py has {version}, the commit is tagged {', '.join(tags)}: v{version} is expected"


def of_distributions(folder: Path, version: str) -> Iterator[str]:
    """Yield parts of the wheel and the sdist in *folder* that an index would refuse or not show as intended."""
    wheel = folder / f"aioproducer-{version}-py3-none-any.whl"
    sdist = folder / f"aioproducer-{version}.tar.gz"
    if {*folder.iterdir()} != {wheel, sdist}:
        found = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        yield f"{folder} should have {wheel.name} and {sdist.name}, and has {found}"
        return
    with ZipFile(wheel) as archive:
        said = {wheel.name: archive.read(f"aioproducer-{version}.dist-info/METADATA")}
    with (
        tarfile.open(sdist) as packed,
        packed.extractfile(f"aioproducer-{version}/PKG-INFO") or BytesIO() as info,
    ):
        said[sdist.name] = info.read()
    for name, metadata in said.items():
        yield from (f"{name}: {complaint}" for complaint in of_metadata(metadata))


def of_metadata(metadata: bytes) -> Iterator[str]:
    """Yield mistakes in METADATA or PKG-INFO, and in its README."""
    try:
        said = Metadata.from_email(metadata)
    except ExceptionGroup as invalid:
        yield from map(str, invalid.exceptions)
        return
    if not (said.description_content_type or "").startswith("text/markdown"):
        yield f"the README is {said.description_content_type or 'of no type'}, not text/markdown"
    elif (shown := markdown.render(said.description or "")) is None:
        yield "the README cannot be rendered: an index would show its source"
    elif links := list(dict.fromkeys(LINK.findall(shown))):
        yield (
            f"the README has {len(links)} links that lead nowhere on an index, such as {links[0]}: "
            "they need the address of the repository in front (RELEASING.md)"
        )


def git(root: Path, *arguments: str) -> str:
    """Return the output of git for the checkout at *root*."""
    return subprocess.run(("git", *arguments), cwd=root, check=True, capture_output=True, text=True).stdout


def complaints(root: Path, folder: Path, version: str) -> Iterator[str]:
    """Yield everything that stands in the way."""
    yield from of_project(tomllib.loads((root / "pyproject.toml").read_text())["project"])
    yield from of_changelog((root / "CHANGELOG.md").read_text(), version)
    yield from of_checkout(root, version)
    yield from of_distributions(folder, version)


def main(folder: Path) -> None:
    """Print that the files in *folder* may be uploaded. Raises: SystemExit if not."""
    found = [*complaints(ROOT, folder, __version__)]
    if found:
        raise SystemExit("\n".join([f"{__version__} cannot be released:", *(f"- {each}" for each in found)]))
    print(f"{__version__} can be released: {folder}")  # noqa: T201 - whoever asked wants to know


if __name__ == "__main__":
    main(Path(sys.argv[1]))
