from __future__ import annotations

import pytest
from rich.console import Console

from aioproducer.cli.shell import plain_table


def test_there_is_a_line_below_the_headings_and_none_around(capsys: pytest.CaptureFixture[str]) -> None:
    table = plain_table("a", "b", show_footer=True)
    table.add_row("1", "2")
    Console(width=20).print(table)
    head, line, row, *_ = capsys.readouterr().out.splitlines()
    assert (head.split(), row.split()) == (["a", "b"], ["1", "2"])
    assert set(line.strip()) == {"─"}
