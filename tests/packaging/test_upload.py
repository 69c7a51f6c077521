"""Release notes, checksums, bill of materials, the list of versions, and the README of an index."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from aioproducer import __version__
from tests.packaging import upload, versions
from tests.packaging.environments import ROOT

hatch_build = pytest.importorskip("hatch_build", reason="hatchling is not installed")
CHANGELOG = """# Changelog

## Unreleased

- Add `b`.

## 1.2.3 - 2030-12-31

- Add `a`.
"""


@pytest.mark.parametrize(("version", "expected"), [("1.2.3", "- Add `a`.\n"), ("1.3.0", "- Add `b`.\n")])
def test_notes_are_the_changes_of_the_version(version: str, expected: str) -> None:
    assert upload.notes(CHANGELOG, version) == expected


def test_upload_has_notes_checksums_and_materials(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "b.whl").write_bytes(b"wheel")
    (dist / "a.tar.gz").write_bytes(b"sdist")
    upload.main(dist, tmp_path / "upload")
    assert {each.name for each in (tmp_path / "upload").iterdir()} == {
        "NOTES.md",
        "SHA256SUMS",
        f"aioproducer-{__version__}.cdx.json",
    }
    assert (tmp_path / "upload/SHA256SUMS").read_text().splitlines() == [
        f"{hashlib.sha256(content).hexdigest()}  {name}"
        for name, content in (("a.tar.gz", b"sdist"), ("b.whl", b"wheel"))
    ]


def test_bill_of_materials_lists_every_dependency_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = upload.bill_of_materials(project, (ROOT / "constraints.txt").read_text(), "1.2.3")
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    requirements = {each.name: each for each in map(Requirement, project["dependencies"])}
    assert [each["name"] for each in found["components"]] == [*requirements]
    for each in found["components"]:
        assert requirements[each["name"]].specifier.contains(each["version"])
        assert each["purl"] == each["bom-ref"] == f"pkg:pypi/{each['name']}@{each['version']}"
    [own] = found["dependencies"]
    assert own["dependsOn"] == [each["bom-ref"] for each in found["components"]]
    assert own["ref"] == found["metadata"]["component"]["bom-ref"]


def test_versions_of_the_site_are_listed_newest_first(tmp_path: Path) -> None:
    for version in ("0.9.0", "0.10.0", "0.2.0"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "index.html").touch()
    versions.main(tmp_path)
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [each["version"] for each in listed] == ["0.10.0", "0.9.0", "0.2.0"]
    assert [each["aliases"] for each in listed] == [["latest"], [], []]
    assert "url=0.10.0/index.html" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](docs/a.md#b)", "[a](https://example.org/p/blob/v1.2.3/docs/a.md#b)"),
        ("![a](b/c.svg)", "![a](https://example.org/p/raw/v1.2.3/b/c.svg)"),
        ("[a](#b)", "[a](#b)"),
        ("[a](https://kafka.apache.org)", "[a](https://kafka.apache.org)"),
    ],
)
def test_links_of_the_readme_lead_to_the_repository(link: str, expected: str) -> None:
    assert hatch_build.absolute(f"See {link}.", "https://example.org/p", "1.2.3") == f"See {expected}."


def test_readme_has_only_addresses_once_the_repository_is_set() -> None:
    metadata: dict[str, object] = {"urls": {"Source": "https://example.org/p/"}}
    hatch_build.ReadmeHook(str(ROOT), {}).update(metadata)
    readme = metadata["readme"]
    assert isinstance(readme, dict)
    targets = re.findall(r"\]\(([^)]*)\)", readme["text"])
    assert targets
    assert all(each.startswith(("https://", "#")) for each in targets)
    assert f"https://example.org/p/blob/v{__version__}/docs/index.md" in targets


def test_readme_is_unchanged_without_an_address() -> None:
    metadata: dict[str, object] = {}
    hatch_build.ReadmeHook(str(ROOT), {}).update(metadata)
    assert metadata["readme"] == {
        "content-type": "text/markdown",
        "text": (ROOT / "README.md").read_text(encoding="utf-8"),
    }
