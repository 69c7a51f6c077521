from __future__ import annotations

from dataclasses import dataclass, fields

from aioproducer.config.kinds import Flag
from aioproducer.config.option import option

KIND = Flag()


@dataclass
class Few:
    one: bool = option(True, KIND, "What it is for.")


def test_an_option_knows_its_kind_and_its_meaning() -> None:
    assert Few().one is True
    (one,) = fields(Few)
    assert one.metadata == {"kind": KIND, "meaning": "What it is for."}
