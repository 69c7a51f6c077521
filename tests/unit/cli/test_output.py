from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioproducer.cli.output import plain_table, show_table
from aioproducer.testing import ThreadedCluster
from tests.unit.cli.entry_point import run, run_on_terminal

LONG = "a-topic-with-a-long-name." * 9


class Terminal(io.StringIO):
    """File that is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(table: Table, file: io.StringIO, width: int) -> list[str]:
    show_table(Console(file=file, width=width, color_system=None), table)
    return file.getvalue().splitlines()


def of_topics() -> Table:
    table = plain_table("topic", "leader", "replicas", "flaw")
    table.add_row(Text("orders", "bold"), "1", "1,2,3", Text())
    table.add_row(Text("orders", "bold"), "2", "1,2,3", Text("not in\nsync: 3"))
    table.add_row(Text("[red]日本"), "3", "1,2,3", "")
    return table


def test_table_has_a_line_below_its_headings() -> None:
    head, line, row, *_ = shown(of_topics(), Terminal(), 80)
    assert (head.split(), row.split()) == (
        ["topic", "leader", "replicas", "flaw"],
        ["orders", "1", "1,2,3"],
    )
    assert set(line.strip()) == {"─"}


def test_rows_are_text_on_a_narrow_terminal() -> None:
    assert shown(of_topics(), Terminal(), 28) == [
        "topic orders",
        "  leader: 1  replicas: 1,2,3",
        "  leader: 2  replicas: 1,2,3",
        "  flaw: not in sync: 3",
        "topic [red]日本",
        "  leader: 3  replicas: 1,2,3",
    ]


def test_footer_is_the_last_row_on_a_narrow_terminal() -> None:
    table = plain_table(show_footer=True)
    table.add_column("partition", footer="all")
    table.add_column("records", "12")
    table.add_row("0", "12")
    assert shown(table, Terminal(), 12) == [
        "partition 0",
        "  records: 12",
        "partition all",
        "  records: 12",
    ]


@pytest.mark.parametrize("width", [1, 20, 40])
def test_table_is_whole_without_a_terminal(width: int) -> None:
    table = plain_table("topic", "partitions")
    table.add_row(LONG, ",".join(map(str, range(500))))
    _, _, row = shown(table, io.StringIO(), width)
    assert row.split() == [LONG, ",".join(map(str, range(500)))]


def test_forced_colours_make_no_terminal() -> None:
    file = io.StringIO()
    show_table(Console(file=file, width=20, force_terminal=True, color_system=None), of_topics())
    assert "orders      1        1,2,3" in file.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 60, 80])
def test_commands_fit_a_terminal(columns: int) -> None:
    value = "日本語" * 30
    with ThreadedCluster(topics={"orders": 1, LONG: 2}) as cluster:
        servers = ("-b", cluster.bootstrap_servers)
        assert run("send", "orders", *servers, given=f"v\n{value}\n").returncode == 0
        code, topics = run_on_terminal("topics", *servers, columns=columns)
        assert code == 0
        code, tail = run_on_terminal("tail", "orders", *servers, columns=columns)
        assert code == 0
        by_variable = run_on_terminal("topics", *servers, columns=250, environment={"COLUMNS": str(columns)})
    assert f"topic {LONG}\n" in topics, "the name can be copied"
    assert "  partition: 0  leader: 1  replicas: 1" in topics
    assert by_variable == (0, topics)
    assert all(cell_len(line) <= columns or LONG in line for line in f"{topics}{tail}".splitlines())
    head, *rest = [line for line in tail.splitlines() if not line.endswith(" (none): v")]
    assert head.startswith("0 1 2")
    assert "".join(line.removeprefix("    ") for line in rest) == f"(none): {value}"


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"COLUMNS": "40"}, {"FORCE_COLOR": "1", "TERM": "xterm"}])
def test_piped_output_is_whole(environment: dict[str, str]) -> None:
    value = "日本語" * 300
    with ThreadedCluster(topics={LONG: 2}) as cluster:
        servers = ("-b", cluster.bootstrap_servers)
        assert run("send", LONG, *servers, given=f"{value}\n").returncode == 0
        topics = run("topics", *servers, environment=environment)
        missing = run("topics", "odrers", LONG[:-1], *servers, environment=environment)
        tail = run("tail", LONG, *servers, environment=environment)
        audit = run("audit", LONG, "--run", "r", *servers, environment=environment)
    assert [line.count(LONG) for line in topics.stdout.splitlines()][-2:] == [1, 1]
    assert missing.stderr == f"Error: {LONG[:-1]}, odrers: no topic of this name\n"
    [line] = tail.stdout.splitlines()
    assert line.endswith(f"(none): {value}")
    assert f"Topic {LONG} has 1 records" in audit.stdout
    assert not audit.stderr
