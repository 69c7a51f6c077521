from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest

from aioproducer.cli.parameters import check_rate, check_run, check_topic_name, new_topics, take_settings

OPTION = click.Option(["--it"])


def taken(take: Callable[..., Any], value: object) -> Any:
    return take(click.Context(click.Command("c")), OPTION, value)


def test_topics_are_taken_apart() -> None:
    assert taken(new_topics, ("orders:6", "clicks")) == {"orders": 6, "clicks": 1}


def test_settings_are_taken_apart() -> None:
    assert taken(take_settings, ("linger.ms = 5", "client.id=a=b")) == {"linger.ms": "5", "client.id": "a=b"}


def test_what_is_fine_stays_as_it_is() -> None:
    assert taken(check_topic_name, "orders") == "orders"
    assert (taken(check_run, None), taken(check_run, "r")) == (None, "r")
    assert (taken(check_rate, None), taken(check_rate, 0.5)) == (None, 0.5)


@pytest.mark.parametrize(
    ("take", "value", "complaint"),
    [
        (new_topics, ("orders:x",), "should be like orders:6"),
        (new_topics, ("orders:²",), "should be like orders:6"),
        (new_topics, ("orders:" + "9" * 5_000,), "should be like orders:6"),
        (new_topics, ("orders:0",), "should be like orders:6"),
        (new_topics, (":6",), "is not a legal name"),
        (new_topics, ("orders", "orders:6"), "orders is there twice"),
        (take_settings, ("linger",), "should be like linger.ms=0"),
        (take_settings, ("bootstrap.servers=a:1",), "--bootstrap-servers says so already"),
        (check_topic_name, "or ders", "is not a legal name"),
        (check_run, "", "a run's id must not be empty"),
        (check_rate, float("inf"), "inf is no number of records"),
        (check_rate, float("nan"), "nan is no number of records"),
    ],
)
def test_what_makes_no_sense_is_refused(take: Callable[..., Any], value: object, complaint: str) -> None:
    with pytest.raises(click.BadParameter, match=complaint):
        taken(take, value)
