"""docs/reference/configuration.md says of every option what the code does; on a mismatch, paste what is expected."""

from __future__ import annotations

import re
from dataclasses import MISSING
from pathlib import Path

from aioproducer.config.names import REFUSED, REFUSED_OF_OTHERS, WITHOUT_EFFECT
from aioproducer.config.options import KINDS, OPTIONS

PAGE = (Path(__file__).parents[3] / "docs/reference/configuration.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    _, _, rest = PAGE.partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]


def rows(title: str) -> list[str]:
    return [line for line in section(title).splitlines() if line.startswith("| `")]


def test_every_option_is_listed_as_it_is() -> None:
    expected = [
        f"| `{each.name}` | {KINDS[each.name].expected} "
        f"| {'required' if each.default is MISSING else f'`{each.default!r}`'} "
        f"| {KINDS[each.name].unit} | {each.metadata['meaning']} |"
        for each in OPTIONS
    ]
    assert rows("Options") + rows("Security") == expected, "\n".join(expected)


def test_every_name_without_effect_is_listed() -> None:
    listed = re.findall(r"`([a-z.]+\.[a-z.]+)`", section("Known to Kafka, without effect here"))
    assert sorted(listed) == sorted(WITHOUT_EFFECT)


def test_every_name_that_is_refused_is_listed_with_the_reason() -> None:
    expected = [f"| `{name}` | {reason} |" for name, reason in {**REFUSED, **REFUSED_OF_OTHERS}.items()]
    assert rows("Refused") == expected, "\n".join(expected)
