from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import click
import pytest
from click.testing import CliRunner

from aioproducer.cli.command_classes import Command, Group
from aioproducer.cli.commands import program
from aioproducer.testing import ThreadedCluster
from tests.cases import for_each
from tests.unit.cli.entry_point import run


def commands(group: click.Group = program, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands())
EXAMPLES = [
    (name, example)
    for name, command in COMMANDS.items()
    for example in cast("Command | Group", command).examples
]


def options(command: click.Command) -> Iterator[click.Option]:
    return (each for each in command.params if isinstance(each, click.Option) and not each.hidden)


def help_of(name: str) -> str:
    done = CliRunner().invoke(program, [*name.split(), "--help"], prog_name="aioproducer")
    assert done.exit_code == 0
    return done.output


@for_each("name", COMMANDS)
def test_every_option_has_a_text(name: str) -> None:
    assert [option.opts for option in options(COMMANDS[name]) if not option.help] == []


def test_option_has_one_form_in_all_commands() -> None:
    forms: dict[str, set[object]] = {}
    for command in COMMANDS.values():
        for option in options(command):
            form = (tuple(option.opts), option.metavar, type(option.type), option.multiple, option.is_flag)
            forms.setdefault(option.opts[-1], set()).add(form)
    assert {name: found for name, found in forms.items() if len(found) > 1} == {}


def test_commands_have_the_options_of_their_kind() -> None:
    flags = {name: {flag for each in options(each) for flag in each.opts} for name, each in COMMANDS.items()}
    logs = {"-v", "--verbose", "--log-level", "--log-format"}
    assert {name for name, found in flags.items() if not logs <= found} == {"completion"}
    assert {name for name, found in flags.items() if "--compression" in found} == {"send", "perf", "demo"}
    of_a_cluster = {name for name, found in flags.items() if "--bootstrap-servers" in found}
    shared = {"-b", "--config", "-o", "--option", "--security-protocol", "--config-prefix"}
    assert all(shared <= flags[name] for name in of_a_cluster)
    assert of_a_cluster - {name for name, found in flags.items() if "--json" in found} == {
        "demo",
        "spark-recover",
    }


def test_options_are_in_groups() -> None:
    of_send = re.findall(r"^(\w[\w ]*):$", help_of("send"), re.MULTILINE)
    assert of_send == [
        "Input",
        "Records",
        "Delivery",
        "Cluster",
        "TLS and login",
        "Output and log",
        "Examples",
    ]
    of_topics = re.findall(r"^(\w[\w ]*):$", help_of("topics"), re.MULTILINE)
    assert of_topics == ["Cluster", "TLS and login", "Output and log", "Examples"]
    of_cluster = help_of("tail").split("Cluster:\n")[1].split("\n\n")[0]
    assert re.findall(r"^  (?:-\w, )?(--[\w-]+)", of_cluster, re.MULTILINE) == [
        "--bootstrap-servers",
        "--config",
        "--config-prefix",
        "--config-providers",
        "--option",
    ]


@for_each("name", COMMANDS)
def test_help_has_every_option_once(name: str) -> None:
    _, *groups = re.split(r"^\w[\w ]*:\n", help_of(name), flags=re.MULTILINE)  # behind the description
    shown = re.findall(r"^  (?:-\w, )?(--[\w-]+)", "".join(groups), re.MULTILINE)
    first = [next(flag for flag in each.opts if flag.startswith("--")) for each in options(COMMANDS[name])]
    assert sorted(shown) == sorted([*first, "--help"])


@for_each("name", [name for name in COMMANDS if name != "transactions"])
def test_help_ends_with_examples(name: str) -> None:
    examples = [example for of, example in EXAMPLES if of == name]
    assert examples
    assert all(len(example) <= 90 for example in examples)
    shown = help_of(name).split("Examples:\n")[1].splitlines()
    assert shown == [f"  {example}" for example in examples]


@pytest.mark.slow
@pytest.mark.parametrize("example", [example for _, example in EXAMPLES])
def test_example_runs(example: str, tmp_path: Path) -> None:
    if "spark-recover" in example and find_spec("pyspark") is None:
        pytest.skip("needs pyspark")
    for name in ("monday.txt", "orders.log", "big.txt"):
        (tmp_path / name).write_text("first\nsecond\n")
    (tmp_path / "tuesday.txt.gz").write_text("third\n")
    (tmp_path / "o.jsonl").write_text('{"id": "a"}\n')
    (tmp_path / "producer.properties").write_text("bootstrap.servers=a:9092\n")
    (tmp_path / "prepared.txt").write_text("")
    code = 1 if re.search("audit|describe", example) else 0  # there is no such run, and no such id
    if "aioproducer broker" in example:
        example = example.replace(
            "aioproducer broker", "timeout --foreground -s INT 3 aioproducer broker --port 0"
        )
        code = 124
    (tmp_path / "aioproducer").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aioproducer "$@"\n')
    (tmp_path / "aioproducer").chmod(0o755)
    with ThreadedCluster(topics={"orders": 1}) as cluster:
        done = subprocess.run(
            ["bash", "-c", example.replace("localhost:9092", cluster.bootstrap_servers)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONASYNCIODEBUG": "", "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert (done.returncode, done.stderr) == (code, ""), done.stdout


@pytest.mark.slow
def test_acceleration_is_shown() -> None:
    with ThreadedCluster(topics={"orders": 1}) as cluster:
        perf = ("perf", "orders", "--records", "10", "-b", cluster.bootstrap_servers)
        pure = {"AIOPRODUCER_PURE": "1"}
        assert run("--version", environment=pure).stdout.endswith(" (pure Python)\n")
        assert re.search(r"^producer +pure Python$", run(*perf, environment=pure).stdout, re.MULTILINE)
        assert '"accelerated": false' in run(*perf, "--json", environment=pure).stdout
        demo = run("demo", "--records", "100", environment=pure)
        assert "compression_type=zstd, pure Python\n" in demo.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "codec"),
    [
        ((), "zstd"),
        (("--compression", "lz4"), "lz4"),
        (("-o", "compression.type=gzip"), "gzip"),
        (("--config", "librdkafka.properties"), "lz4"),
        (("--config", "librdkafka.properties", "--compression", "gzip"), "gzip"),
    ],
)
def test_demo_compresses_as_configured(options: tuple[str, ...], codec: str, tmp_path: Path) -> None:
    (tmp_path / "librdkafka.properties").write_text("compression.codec=lz4\n")
    with ThreadedCluster() as cluster:
        servers = ("-b", cluster.bootstrap_servers)
        done = run("demo", "--records", "100", *options, *servers, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"compression_type={codec}," in done.stdout
        twice = run("demo", "--compression", "lz4", "-o", "compression.type=gzip", *servers)
    assert (twice.returncode, "--compression already sets" in twice.stderr) == (2, True)
