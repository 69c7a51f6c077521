from __future__ import annotations

from benchmarks.settings import WINDOW, Settings, Work


def test_settings_reach_another_process_as_they_are() -> None:
    settings = Settings(work=Work.ONE_BY_ONE, seconds=0.5, keys=True, compression="zstd", uvloop=True)
    assert Settings.loads(settings.dumps()) == settings


def test_a_window_of_small_values_has_ten_thousand() -> None:
    assert Settings(work=Work.FIRE).window == WINDOW == 10_000


def test_a_window_of_large_values_is_bounded_by_its_bytes() -> None:
    assert Settings(work=Work.FIRE, value_bytes=10 * 1024).window == 819
    assert Settings(work=Work.FIRE, value_bytes=1 << 30).window == 1
