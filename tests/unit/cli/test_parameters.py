from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from aioproducer.cli.parameters import (
    ClusterOptions,
    check_rate,
    check_run,
    check_topic_name,
    complete_compression,
    complete_setting,
    configuration,
    new_topics,
    take_settings,
)
from aioproducer.errors import ConfigError
from tests.cases import for_each

OPTION = click.Option(["--it"])


def taken(take: Callable[..., Any], value: object) -> Any:
    return take(click.Context(click.Command("c")), OPTION, value)


def test_topics_option_is_parsed() -> None:
    assert taken(new_topics, ("orders:6", "clicks")) == {"orders": 6, "clicks": 1}


def test_settings_option_is_parsed() -> None:
    assert taken(take_settings, ("linger.ms = 5", "client.id=a=b")) == {"linger.ms": "5", "client.id": "a=b"}


def test_settings_may_be_spelled_with_underscores() -> None:
    assert taken(take_settings, ("linger_ms=5",)) == {"linger.ms": "5"}


def test_valid_values_are_unchanged() -> None:
    assert taken(check_topic_name, "orders") == "orders"
    assert (taken(check_run, None), taken(check_run, "r")) == (None, "r")
    assert (taken(check_rate, None), taken(check_rate, 0.5)) == (None, 0.5)


@for_each(
    ("take", "value", "complaint"),
    [
        (new_topics, ("orders:x",), "should be like orders:6"),
        (new_topics, ("orders:²",), "should be like orders:6"),
        (new_topics, ("orders:" + "9" * 5_000,), "should be like orders:6"),
        (new_topics, ("orders:0",), "give 1 or more, such as orders:6"),
        (new_topics, (":6",), "is not a legal name"),
        (new_topics, ("orders", "orders:6"), "orders is given twice"),
        (take_settings, ("linger",), "should be like linger.ms=0"),
        (take_settings, ("bootstrap.servers=a:1",), "cannot be set with --option: give --bootstrap-servers"),
        (take_settings, ("value_serializer=x",), "commands send bytes"),
        (check_topic_name, "or ders", "is not a legal name"),
        (check_run, "", "a run's id has 1 to 4,096 bytes, not 0"),
        (check_run, "é" * 2_049, "a run's id has 1 to 4,096 bytes, not 4,098"),
        (check_run, "\udcff", r"'\\udcff' is not UTF-8"),
        (check_rate, float("inf"), "inf is not a number of records"),
        (check_rate, float("nan"), "nan is not a number of records"),
    ],
)
def test_illegal_values_are_refused(take: Callable[..., Any], value: object, complaint: str) -> None:
    with pytest.raises(click.BadParameter, match=complaint):
        taken(take, value)


PROPERTIES = """
    bootstrap.servers = a:1
    linger_ms = 20
    batch.size = 1000
    key.serializer = org.apache.kafka.common.serialization.StringSerializer
"""


def test_settings_override_file_and_servers_override_both(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text(PROPERTIES)
    config = configuration(ClusterOptions(None, file, {"linger.ms": "7"}))
    assert (config.bootstrap_servers, config.linger_ms, config.batch_size) == (("a:1",), 7, 1000)
    assert config.key_serializer is None, "what is sent is bytes"
    assert configuration(ClusterOptions("b:2", file, {})).bootstrap_servers == ("b:2",)
    assert configuration(ClusterOptions("b:2", None, {"linger.ms": "7"})).linger_ms == 7


def test_missing_servers_are_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("linger.ms = 20")
    for file in (None, tmp_path / "p"):
        with pytest.raises(click.UsageError, match="Missing option '-b' / '--bootstrap-servers'"):
            configuration(ClusterOptions(None, file, {}))


def test_servers_of_a_file_may_have_the_name_of_librdkafka(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("metadata.broker.list = a:1")
    assert configuration(ClusterOptions(None, tmp_path / "p", {})).bootstrap_servers == ("a:1",)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[default]\nbootstrap.servers = a:1", r"^'\[default\]bootstrap.servers': .*--config-prefix"),
        ("spring.kafka.bootstrap-servers = a:1", r"^'spring.kafka.bootstrap-servers': .*--config-prefix"),
        ("bootstrap.server = a:1", r"^unknown option 'bootstrap.server'; did you mean 'bootstrap.servers'"),
    ],
)
def test_wrong_names_come_before_missing_servers(tmp_path: Path, text: str, mistake: str) -> None:
    (tmp_path / "p").write_text(text)
    with pytest.raises(ConfigError, match=rf"{mistake}.*aioproducer config .*p` checks it"):
        configuration(ClusterOptions(None, tmp_path / "p", {}))


def test_error_in_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("linger.ms = soon")
    with pytest.raises(ConfigError, match=r"^linger.ms = 'soon'.*aioproducer config .*p` checks it"):
        configuration(ClusterOptions("a:1", tmp_path / "p", {}))
    with pytest.raises(ConfigError, match=r"^linger.ms = 'soon'(?!.*checks it)"):
        configuration(ClusterOptions("a:1", None, {"linger.ms": "soon"}))


def test_names_are_completed() -> None:
    context = click.Context(click.Command("c"))
    assert complete_setting(context, OPTION, "linger") == ["linger.ms="]
    assert complete_compression(context, OPTION, "") == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert complete_compression(context, OPTION, "z") == ["zstd"]
