"""Writes versions.json, which the version selector of the site reads, and a start page that leads to the newest version.

Run by make release-docs: python -m tests.packaging.versions FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from packaging.version import Version


def main(folder: Path) -> None:
    """List the sites below *folder*, newest first."""
    found = sorted((Version(each.parent.name) for each in folder.glob("*/index.html")), reverse=True)
    versions = [
        {"version": str(each), "title": str(each), "aliases": ["latest"] if each == found[0] else []}
        for each in found
    ]
    (folder / "versions.json").write_text(json.dumps(versions) + "\n")
    (folder / "index.html").write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={found[0]}/index.html"><title>aioproducer</title>\n'
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
