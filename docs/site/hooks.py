"""Additions to the pages of the site: linked files of the repository, diagrams, and cards for narrow screens.

On a code host a page links to `../examples/bulk.py`. On the site this file becomes a page in `repository/`, and pictures
are copied there, so one link serves the code host and the site. No page loads a resource from another host.
"""

from __future__ import annotations

import html
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
DIAGRAM: Final = re.compile(r"```mermaid\n(.*?)```\n", re.DOTALL)
SEND: Final = re.compile(r"sequenceDiagram\n(.*)", re.DOTALL)
STATES: Final = re.compile(r"stateDiagram-v2\n(.*)", re.DOTALL)
MERMAID: Final = ROOT / ".cache/npm/node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js"
"""The script that draws diagrams. `make docs` installs the version of `package-lock.json`, if npm is available."""
WRAPPED: Final = (
    '%%{init: {"sequence": {"wrap": true, "width": 240, "actorMargin": 20, "mirrorActors": false}}}%%\n'
)
"""Labels wrap, or a diagram of long labels would shrink until they are unreadable."""
SCRIPT: Final = "site/mermaid.tiny.js"
ANCHORS: Final = {
    "reference/configuration.md": tuple(KINDS),
    "reliability.md": tuple(name for name in errors.__all__ if name != "broker_error"),
}
"""The pages on which each name has an anchor."""
ERROR: Final = re.compile(rf"\b(?:{'|'.join(ANCHORS['reliability.md'])})\b")
RAISED: Final = re.compile(r'(<li class="doc-section-item field-body">\s*<code>)(.*?)(</code>)', re.DOTALL)
"""An item of a list of exceptions, parameters or results on the API page."""
TABLE: Final = re.compile(r"<table>.*?</table>", re.DOTALL)
LOADED: Final = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\bsrc=\"([^\"]+)\""
    r"|<link\b(?![^>]*\brel=\"(?:canonical|prev|next)\")[^>]*\bhref=\"([^\"]+)\""
)


def linked(page: str, text: str) -> set[str]:
    """Return the files outside of docs/ to which *page* links; both are paths in the repository."""
    targets = {posixpath.normpath(posixpath.join(posixpath.dirname(page), to)) for to in LINK.findall(text)}
    return {each for each in targets if not each.startswith(DOCS) and (ROOT / each).is_file()}


def place(path: str) -> str:
    """Return the path in the site's sources of the file of the repository at *path*."""
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
    """Return a file of the site for the file of the repository at *path*: a copy of a picture, or a page with the text."""
    suffix = Path(path).suffix
    if suffix in PICTURES:
        return File.generated(config, place(path), abs_src_path=str(ROOT / path))
    text = (ROOT / path).read_text()
    if suffix != ".md":
        text = f"# {Path(path).name}\n\n`{path}`\n\n````{LANGUAGES.get(suffix, 'text')}\n{text}````\n"
    return File.generated(config, place(path), content=text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the linked files of the repository, the files that these link to, and the script for diagrams."""
    if MERMAID.is_file():
        files.append(File.generated(config, SCRIPT, abs_src_path=str(MERMAID)))
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
    """Point links that leave docs/ to the copies, and add a table to each diagram."""
    source = page.file.src_uri
    if source.startswith(COPIES):
        page.meta["search"] = {"exclude": True}  # programs would precede the pages that explain them
    if not origin(source).endswith(".md"):
        return markdown  # a[0](b) in a program is not a link

    def to_copy(link: re.Match[str]) -> str:
        base = posixpath.dirname(origin(source))
        target = posixpath.normpath(posixpath.join(base, link[1]))
        return posixpath.relpath(place(target), posixpath.dirname(source) or ".")

    return DIAGRAM.sub(with_table, LINK.sub(to_copy, with_anchors(source, markdown)))


def with_table(diagram: re.Match[str]) -> str:
    """Return the diagram for wide screens and its table for narrow ones; without the script, the table or the source.

    `class="mermaid"` without the script would make the theme load the script from another host.
    """
    table = STATES.sub(as_table, SEND.sub(as_steps, diagram[1]))
    has_table = table != diagram[1]
    if not MERMAID.is_file():
        return table if has_table else f"```text\n{diagram[1]}```\n"
    source = html.escape(WRAPPED + diagram[1], quote=False)
    drawn = f'<pre class="mermaid"><code>{source}</code></pre>\n'
    return f'{drawn}\n<div class="diagram-table" markdown>\n\n{table}\n</div>\n' if has_table else drawn


def with_anchors(source: str, markdown: str) -> str:
    """Give each option, or each error, an anchor of its name: at its row, or where it is named first."""
    for name in ANCHORS.get(source, ()):
        row = re.compile(rf"^\| [^|\n]*(?=`{name}`)", re.MULTILINE)
        found = row.search(markdown) or re.search(rf"(?=`{name}`)", markdown)
        if found is not None:
            markdown = f'{markdown[: found.end()]}<a id="{name}"></a>{markdown[found.end() :]}'
    return markdown


def as_table(diagram: re.Match[str]) -> str:
    """Return a table of the transitions of the diagram."""
    following: dict[str, list[str]] = {}
    for state, to, event in re.findall(r"(\w+) --> (\w+): (\w+)", diagram[1]):
        following.setdefault(state, []).append(f"`{event}` → `{to}`")
    rows = [f"| `{state}` | {', '.join(to)} |" for state, to in following.items()]
    return "\n".join(["| state | event → next state |", "|---|---|", *rows, ""])


def as_steps(diagram: re.Match[str]) -> str:
    """Return a table of the messages and notes of the diagram, in their order."""
    names = dict(re.findall(r"participant (\w+) as (\S+)", diagram[1]))
    steps = re.findall(r"(?:Note over (\w+)|(\w+)-?->>(\w+)): (.*)", diagram[1])
    rows = [
        f"| `{names[where]}` | {text} |" if where else f"| `{names[of]}` → `{names[to]}` | {text} |"
        for where, of, to, text in steps
    ]
    return "\n".join(["| module | step |", "|---|---|", *rows, ""])


def on_page_content(content: str, **_: object) -> str:
    """Give each cell the name of its column, for the cards of a narrow screen."""
    return TABLE.sub(with_columns, content)


def with_columns(table: re.Match[str]) -> str:
    """Return the table with a `data-column` in each cell of its body, and `data-none` in each cell without a value."""
    names = [
        re.sub(r"<[^>]+>", "", each).strip().replace('"', "&quot;")
        for each in re.findall(r"<th[^>]*>(.*?)</th>", table[0], re.DOTALL)
    ]

    def row(found: re.Match[str]) -> str:
        columns = iter(names)
        cells = re.sub(r"<td", lambda _: f'<td data-column="{next(columns, "")}"', found[0])
        return re.sub(r"(?=>-</td>)", " data-none", cells)

    return re.sub(r"<tr>.*?</tr>", row, table[0], flags=re.DOTALL)


def with_errors(output: str, reliability: str) -> str:
    """Link each error in a list of exceptions to its row on the page *reliability*."""

    def linked_names(item: re.Match[str]) -> str:
        names = re.sub(r"<[^>]+>", "", item[2])
        return item[1] + ERROR.sub(rf'<a href="{reliability}#\g<0>">\g<0></a>', names) + item[3]

    return RAISED.sub(linked_names, output)


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Add links of errors and the script for diagrams; warn of resources of other hosts, which fails a strict build."""
    folder = posixpath.dirname(page.file.dest_uri) or "."
    if page.file.src_uri == "reference/api.md":
        output = with_errors(output, posixpath.relpath("reliability.html", folder))
    if 'class="mermaid"' in output:
        script = posixpath.relpath(SCRIPT, folder)
        output = output.replace("</head>", f'<script defer src="{script}"></script></head>', 1)
    for found in LOADED.findall(output):
        address = "".join(found)
        if urlsplit(address).netloc:
            log.warning("%s loads %s", page.file.src_uri, address)
    return output
