"""Output of the commands: escaped text, tables, and an error if standard output cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from io import TextIOBase, TextIOWrapper
from typing import TYPE_CHECKING, Any, Final

import click

from aioproducer._core.acceleration import accelerated
from aioproducer._core.logfmt import escaped

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

ACCELERATION: Final = "accelerated" if accelerated else "pure Python"
"""Implementation of the producer, for output."""


def printable(text: str) -> str:
    """Return *text* with every unprintable character escaped, except line breaks."""
    return "\n".join(map(escaped, text.split("\n")))


def echo(text: str, *, err: bool = False) -> None:
    """Print *text* and a line break, escaped, to standard output or, with *err*, to standard error."""
    click.echo(printable(text), err=err)


def echo_json(value: object) -> None:
    """Print *value* as indented JSON to standard output."""
    import json  # help and completion start faster without json

    echo(json.dumps(value, indent=2))


def exit_unless(ok: bool) -> None:
    """End the command with exit code 1 unless *ok*."""
    if not ok:
        raise click.exceptions.Exit(1)


def escaping(console: Console) -> Console:
    """Return *console*, which then escapes all printed text."""
    from rich.console import RenderHook

    class Escaping(RenderHook):
        """Wraps printed renderables, and keeps the control codes of rich."""

        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            return [_Escaped(each) for each in renderables]

    console.push_render_hook(Escaping())
    return console


class OutputLost(click.ClickException):
    """Standard output cannot be written, for example on a full disk."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: cannot write, {error.strerror}")


def checked(stream: Any) -> Any:
    """Return the stream that replaces standard output *stream*, and raises `OutputLost`.

    A broken pipe stays BrokenPipeError: click and rich end the command without an error line. Python sets a standard
    output that is closed to None.
    """
    if stream is None:
        return _Closed()
    if not isinstance(stream, TextIOWrapper):
        return stream
    return _Checked(
        stream.buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
    )


class _Checked(TextIOWrapper):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(error) from error


class _Closed(TextIOBase):
    def write(self, text: str) -> int:
        raise OutputLost(OSError(errno.EBADF, os.strerror(errno.EBADF)))


class _Escaped:
    """A renderable whose text segments are escaped."""

    def __init__(self, renderable: Any) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for text, style, control in console.render(self._renderable, options):
            yield Segment(text if control else printable(text), style, control)


_WIDEST: Final = 1_000_000
"""Maximum width when a table is measured, in cells."""
_INDENT: Final = "  "


def plain_table(*headings: str, **options: Any) -> Table:
    """Return an empty table with a line below its headings and without a frame, for `grep`."""
    from rich import box
    from rich.table import Table

    return Table(*headings, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, **options)


def show_table(console: Console, table: Table) -> None:
    """Print *table*; on a terminal that is narrower, print each row as lines of `heading: cell`.

    Output to a file or pipe has the width of the table, because `grep` needs whole names.
    """
    from rich.measure import Measurement

    width = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    if width > console.width and on_terminal(console):
        for line in _as_text(table, console.width):
            console.print(line, soft_wrap=True)
        return
    console.width = max(console.width, width)
    console.print(table)


def on_terminal(console: Console) -> bool:
    """Return True if *console* writes to a terminal; rich assumes a terminal for any file with FORCE_COLOR."""
    isatty = getattr(console.file, "isatty", None)
    return bool(isatty and isatty())


def _as_text(table: Table, width: int) -> Iterator[Text]:
    from rich.text import Text

    headings = [_text(column.header).plain for column in table.columns]
    rows = [list(map(_text, row)) for row in zip(*(column.cells for column in table.columns), strict=True)]
    if table.show_footer:
        rows.append([_text(column.footer) for column in table.columns])
    before = None
    for name, *cells in rows:
        if name.plain != before:  # rows of one topic share its line
            before = name.plain
            title = Text.assemble(f"{headings[0]} " if headings[0] else "", name)
            title.stylize("bold")
            yield title
        pairs = (
            Text.assemble(f"{heading}: " if heading else "", cell)
            for heading, cell in zip(headings[1:], cells, strict=True)
            if cell.plain
        )
        yield from _filled(pairs, width)


def _text(cell: RenderableType) -> Text:
    """Return a cell as a line of text."""
    from rich.text import Text

    text = cell.copy() if isinstance(cell, Text) else Text(str(cell))
    return Text(" ").join(text.split("\n"))


def _filled(pairs: Iterator[Text], width: int) -> list[Text]:
    """Return lines of whole pairs; a pair wider than *width* has a line of its own."""
    from rich.text import Text

    lines: list[Text] = []
    for pair in pairs:
        if lines and lines[-1].cell_len + len(_INDENT) + pair.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], _INDENT, pair)
        else:
            lines.append(Text.assemble(_INDENT, pair))
    return lines
