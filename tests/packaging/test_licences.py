"""docs/licences.md has the licences in the metadata of the packages."""

from __future__ import annotations

from packaging.requirements import Requirement

from tests.packaging.licences import EXTRAS, PAGE, PROJECT, TABLES, licence, tables

ABSENT = "not installed here"
"""Said of what only another Python needs."""


def rows(text: str) -> dict[str, list[str]]:
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line)
    return {package: rest for package, *rest in cells}


def test_licences_page_has_every_package() -> None:
    """If it fails: python -m tests.packaging.licences."""
    (written,) = TABLES.findall(PAGE.read_text())
    on_page, expected = rows(written), rows(tables())
    for package, cells in expected.items():
        if cells[0] == ABSENT and package in on_page:
            cells[0] = on_page[package][0]
    assert on_page == expected


def test_requested_packages_are_installed_and_have_a_licence() -> None:
    asked = [*PROJECT["dependencies"], *(each for listed in EXTRAS.values() for each in listed)]
    names = {Requirement(each).name for each in asked} - {"aioproducer"}
    assert [name for name in sorted(names) if not licence(name)] == []
