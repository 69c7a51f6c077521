"""The boundary to the terminal: text of brokers, topics and files is escaped before it is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from aioproducer._core.acceleration import accelerated
from aioproducer._core.escaping import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult

ACCELERATION: Final = "accelerated" if accelerated else "pure Python"
"""The producer's implementation, for people."""


def printable(text: str) -> str:
    """Return *text* with every unprintable character escaped, except line breaks."""
    return "\n".join(map(escaped, text.split("\n")))


def echo(text: str, *, err: bool = False) -> None:
    """Print *text* and a line break, escaped, to standard output or, with *err*, to standard error."""
    click.echo(printable(text), err=err)


def escaping(console: Console) -> Console:
    """Make *console* escape all text that it prints, and return it."""
    from rich.console import RenderHook

    class Escaping(RenderHook):
        """Wraps printed renderables; the control codes of rich itself stay."""

        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            return [_Escaped(each) for each in renderables]

    console.push_render_hook(Escaping())
    return console


class _Escaped:
    """A renderable whose text segments are escaped."""

    def __init__(self, renderable: Any) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        segments: Iterable[Segment] = console.render(self._renderable, options)
        for text, style, control in segments:
            yield Segment(text if control else printable(text), style, control)
