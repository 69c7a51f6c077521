"""The tables of docs/licences.md, from the metadata of the installed packages.

Write them anew: python -m tests.packaging.licences
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.environments import ROOT

PAGE = ROOT / "docs/licences.md"
TABLES = re.compile(r"(?<=<!-- licences: begin -->\n).*(?=<!-- licences: end -->)", re.DOTALL)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
NOT_FOR_USERS = ("bench", "dev", "docs")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Some packages are needed on some of them only; the page has those, too."""
LONGEST_NAME = 30
"""Of a licence, in characters: some packages have the whole text where its name belongs."""
NOT_INSTALLED = {"botocore": "Apache-2.0", "gssapi": "ISC", "pyyaml-ft": "MIT"}
"""What the checks do without: the first wants an old python-dateutil, the second is built against the system's Kerberos,
the third is needed on Python 3.13 only."""
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD",
    "GNU General Public License (GPL)": "GPL",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""One name for what packages call by several."""


def licence(package: str) -> str:
    """Return the licence of *package*: its expression, its name or its classifiers.

    Raises: PackageNotFoundError if it is not installed.
    """
    if package in NOT_INSTALLED:
        return NOT_INSTALLED[package]
    said = distribution(package).metadata
    if "License-Expression" in said:
        return said["License-Expression"]
    if "License" in said and 0 < len(name := said["License"]) < LONGEST_NAME and name != "UNKNOWN":
        return SPDX.get(name, name)
    classifiers = (each for each in said.get_all("Classifier", ()) if each.startswith("License :: OSI"))
    return ", ".join(SPDX[each.rpartition(" :: ")[2]] for each in classifiers)


def requirements(package: str, extra: str) -> Iterable[Requirement]:
    """Yield the requirements of *package* on any of the Pythons with *extra*; "" means no extra."""
    if package == "aioproducer":
        listed = EXTRAS[extra] if extra else PROJECT["dependencies"]
    else:
        try:
            listed = [] if package in NOT_INSTALLED else distribution(package).requires or []
        except PackageNotFoundError:  # needed on another Python only
            listed = []
    for requirement in map(Requirement, listed):
        marker = requirement.marker
        if marker is None or any(
            marker.evaluate({"extra": extra, "python_version": each, "python_full_version": f"{each}.0"})
            for each in PYTHONS
        ):
            yield requirement


def needed_by(extra: str) -> set[str]:
    """Return the names of all packages that aioproducer needs with *extra*, and all that these need."""
    found: set[tuple[str, str]] = set()
    todo = [("aioproducer", extra)]
    while todo:
        for requirement in requirements(*todo.pop()):
            name = canonicalize_name(requirement.name)
            parts = {(name, part) for part in requirement.extras or [""]} | {(name, "")}
            todo += parts - found
            found |= parts
    return {name for name, _ in found} - {"aioproducer"}


def row(package: str, *, needed: str) -> str:
    try:
        return f"| {package} | {licence(package)} | {needed} |\n"
    except PackageNotFoundError:
        return f"| {package} | not installed here | {needed} |\n"


def tables() -> str:
    """Return the tables, as they should be on the page."""
    always = needed_by("")
    by_package = defaultdict(list)
    for extra in sorted(EXTRAS.keys() - set(NOT_FOR_USERS)):
        for package in needed_by(extra) - always:
            by_package[package].append(f"`{extra}`")
    text = "| package | licence | needed |\n|---|---|---|\n"
    text += "".join(row(package, needed="always") for package in sorted(always))
    text += "".join(row(package, needed=", ".join(by_package[package])) for package in sorted(by_package))
    at_work = set().union(*(needed_by(extra) for extra in NOT_FOR_USERS)) - always - by_package.keys()
    text += "\n| package of the checks and benchmarks | licence |\n|---|---|\n"
    return text + "".join(row(package, needed="").replace(" |  |", " |") for package in sorted(at_work))


if __name__ == "__main__":
    PAGE.write_text(TABLES.sub(lambda _: tables(), PAGE.read_text()))
