"""Writes the files of a release page: release notes, checksums and a bill of materials.

Run by make release-check: python -m tests.packaging.upload .cache/dist .cache/upload
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from aioproducer import __version__
from tests.packaging.environments import ROOT


def checksums(files: Iterable[Path]) -> str:
    """Return the SHA-256 of each file in the format of sha256sum."""
    return "".join(
        f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted(files)
    )


def notes(changelog: str, version: str) -> str:
    """Return the changes of *version*, or those without a release if *version* has no section."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)
    named = [each for each in sections if each.startswith((version, f"[{version}]"))]
    unreleased = [each for each in sections if each.startswith("Unreleased")]
    return "".join((named or unreleased)[:1]).partition("\n")[2].strip() + "\n"


def bill_of_materials(project: dict[str, Any], constraints: str, version: str) -> dict[str, Any]:
    """Return a CycloneDX 1.6 document with the dependencies that are always installed, at their tested versions.

    Wheels contain no code of another project.
    """
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", constraints.lower(), re.MULTILINE))
    components = []
    for each in map(Requirement, project["dependencies"]):
        tested = pinned[each.name.lower()]
        components.append(
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{each.name}@{tested}",
                "name": each.name,
                "version": tested,
                "purl": f"pkg:pypi/{each.name}@{tested}",
                "properties": [{"name": "aioproducer:requirement", "value": str(each)}],
            }
        )
    own = {"type": "library", "bom-ref": "aioproducer", "name": "aioproducer", "version": version}
    own |= {"purl": f"pkg:pypi/aioproducer@{version}"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**own, "licenses": [{"expression": project["license"]}]}},
        "components": components,
        "dependencies": [{"ref": "aioproducer", "dependsOn": [each["bom-ref"] for each in components]}],
    }


def main(dist: Path, upload: Path) -> None:
    """Write all files for the distributions in *dist* into *upload*."""
    upload.mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    document = bill_of_materials(project, (ROOT / "constraints.txt").read_text(), __version__)
    (upload / f"aioproducer-{__version__}.cdx.json").write_text(json.dumps(document, indent=2) + "\n")
    (upload / "SHA256SUMS").write_text(checksums(dist.iterdir()))
    (upload / "NOTES.md").write_text(notes((ROOT / "CHANGELOG.md").read_text(), __version__))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
