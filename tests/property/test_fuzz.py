"""The short form of `make fuzz`: the same inputs each time."""

from __future__ import annotations

import pytest

from tests.fuzz.__main__ import MEASURED, Finding, all_decoders, play
from tests.fuzz.decoders import Decoder


@pytest.mark.parametrize("block", range(10))
def test_decoders_keep_time_memory_and_errors(block: int) -> None:
    seeds = range(block * 1_000, (block + 1) * 1_000)
    played = {play(seed, measure=not seed % MEASURED) for seed in seeds}
    assert len(played) > len(all_decoders()) / 2


@pytest.mark.parametrize(
    "decode",
    [lambda _: 1 // 0, lambda _: [None] * 3_000_000, lambda _: sum(range(60_000_000))],
    ids=["error", "memory", "time"],
)
def test_broken_decoder_is_found(monkeypatch: pytest.MonkeyPatch, decode: object) -> None:
    broken = Decoder("broken", decode, lambda _: b"x", (ValueError,))  # type: ignore[arg-type]
    monkeypatch.setattr("tests.fuzz.__main__.all_decoders", lambda: (broken,))
    with pytest.raises(Finding, match="broken"):
        _ = [play(1, measure=measure) for measure in (False, True)]
