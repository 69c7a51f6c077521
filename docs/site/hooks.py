"""What the site needs beyond its pages: the files of the repository that they link to, and nothing from elsewhere.

On a code host a page links to `../examples/bulk.py`. Here such a file becomes a page of the site, in `repository/`, and
pictures are copied there. So one link serves both.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from aioproducer import errors
from aioproducer.config.options import KINDS

log = get_plugin_logger(__name__)

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = "docs/"
COPIES: Final = "repository/"
PICTURES: Final = {".svg", ".png"}
LANGUAGES: Final = {".py": "python", ".json": "json", ".yml": "yaml", ".toml": "toml"}
LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
SEND: Final = re.compile(r"```mermaid\nsequenceDiagram\n(.*?)```", re.DOTALL)
STATES: Final = re.compile(r"```mermaid\nstateDiagram-v2\n(.*?)```", re.DOTALL)
ANCHORS: Final = {
    "reference/configuration.md": tuple(KINDS),
    "reliability.md": tuple(name for name in errors.__all__ if name != "broker_error"),
}
"""The pages on which each name has an anchor."""
TABLE: Final = re.compile(r"<table>.*?</table>", re.DOTALL)
LOADED: Final = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\bsrc=\"([^\"]+)\""
    r"|<link\b(?![^>]*\brel=\"(?:canonical|prev|next)\")[^>]*\bhref=\"([^\"]+)\""
)


def linked(page: str, text: str) -> set[str]:
    """Return what *page* links to outside of docs/; both are paths in the repository."""
    targets = {posixpath.normpath(posixpath.join(posixpath.dirname(page), to)) for to in LINK.findall(text)}
    return {each for each in targets if not each.startswith(DOCS) and (ROOT / each).is_file()}


def place(path: str) -> str:
    """Return where the file of the repository at *path* is in the site's sources."""
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return COPIES + (path if Path(path).suffix in PICTURES | {".md"} else f"{path}.md")


def origin(source: str) -> str:
    """Return the path in the repository of the file at *source* in the site's sources."""
    if not source.startswith(COPIES):
        return DOCS + source
    path = source.removeprefix(COPIES)
    return path if (ROOT / path).is_file() else path.removesuffix(".md")


def copied(path: str, config: MkDocsConfig) -> File:
    """Return the file of the repository at *path* as one of the site: as it is, or as a page that shows it."""
    suffix = Path(path).suffix
    if suffix in PICTURES:
        return File.generated(config, place(path), abs_src_path=str(ROOT / path))
    text = (ROOT / path).read_text()
    if suffix != ".md":
        text = f"# {Path(path).name}\n\n`{path}`\n\n````{LANGUAGES.get(suffix, 'text')}\n{text}````\n"
    return File.generated(config, place(path), content=text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what the pages link to, and what that links to."""
    pages = [(DOCS + file.src_uri, file.content_string) for file in files.documentation_pages()]
    done: set[str] = set()
    while pages:
        for path in linked(*pages.pop()) - done:
            done.add(path)
            files.append(copied(path, config))
            if path.endswith(".md"):
                pages.append((path, (ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links that leave docs/ to the copies, and diagrams, which need a script, into tables."""
    source = page.file.src_uri
    if source.startswith(COPIES):
        page.meta["search"] = {"exclude": True}  # programs would be in front of what explains them
    if not origin(source).endswith(".md"):
        return markdown  # a[0](b) of a program is no link

    def to_copy(link: re.Match[str]) -> str:
        base = posixpath.dirname(origin(source))
        target = posixpath.normpath(posixpath.join(base, link[1]))
        return posixpath.relpath(place(target), posixpath.dirname(source) or ".")

    return SEND.sub(as_steps, STATES.sub(as_table, LINK.sub(to_copy, with_anchors(source, markdown))))


def with_anchors(source: str, markdown: str) -> str:
    """Give each option, or each error, an anchor of its name: at its row, or where it is named first."""
    for name in ANCHORS.get(source, ()):
        row = re.compile(rf"^\| [^|\n]*(?=`{name}`)", re.MULTILINE)
        found = row.search(markdown) or re.search(rf"(?=`{name}`)", markdown)
        if found is not None:
            markdown = f'{markdown[: found.end()]}<a id="{name}"></a>{markdown[found.end() :]}'
    return markdown


def as_table(diagram: re.Match[str]) -> str:
    """Return a table of the same transitions."""
    following: dict[str, list[str]] = {}
    for state, to in re.findall(r"(\w+) --> (\w+)", diagram[1]):
        following.setdefault(state, []).append(f"`{to}`")
    rows = [f"| `{state}` | {', '.join(to)} |" for state, to in following.items()]
    return "\n".join(["| a batch that is | may become |", "|---|---|", *rows, ""])


def as_steps(diagram: re.Match[str]) -> str:
    """Return a table of the same messages and notes, in their order."""
    names = dict(re.findall(r"participant (\w+) as (\S+)", diagram[1]))
    steps = re.findall(r"(?:Note over (\w+)|(\w+)-?->>(\w+)): (.*)", diagram[1])
    rows = [
        f"| `{names[where]}` | {text} |" if where else f"| `{names[of]}` → `{names[to]}` | {text} |"
        for where, of, to, text in steps
    ]
    return "\n".join(["| where | what happens |", "|---|---|", *rows, ""])


def on_page_content(html: str, **_: object) -> str:
    """Give each cell the name of its column, for the cards of a narrow screen."""
    return TABLE.sub(with_columns, html)


def with_columns(table: re.Match[str]) -> str:
    """Return the table with a `data-column` in each cell of its body."""
    names = [
        re.sub(r"<[^>]+>", "", each).strip().replace('"', "&quot;")
        for each in re.findall(r"<th[^>]*>(.*?)</th>", table[0], re.DOTALL)
    ]

    def row(found: re.Match[str]) -> str:
        columns = iter(names)
        return re.sub(r"<td", lambda _: f'<td data-column="{next(columns, "")}"', found[0])

    return re.sub(r"<tr>.*?</tr>", row, table[0], flags=re.DOTALL)


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Warn, which ends a strict build, of what a page would load from elsewhere."""
    for found in LOADED.findall(output):
        address = "".join(found)
        if urlsplit(address).netloc:
            log.warning("%s loads %s", page.file.src_uri, address)
    return output
