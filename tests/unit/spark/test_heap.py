from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from aioproducer.spark import heap
from aioproducer.spark.heap import settle_heap


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done of it, in a process that the daemon has forked."""
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(heap, "_settled", Counter())
    runs(monkeypatch, "pyspark.daemon")
    return done


def runs(monkeypatch: pytest.MonkeyPatch, program: str | None) -> None:
    main = ModuleType("__main__")
    main.__spec__ = None if program is None else ModuleSpec(program, None)
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_garbage_is_collected_before_the_rest_is_left_alone(done: list[str]) -> None:
    settle_heap()
    assert done == ["collect", "freeze"]


def test_each_process_freezes_imports_behind_its_first_answer(
    monkeypatch: pytest.MonkeyPatch, done: list[str]
) -> None:
    for pid in (1, 1, 1, 2, 2, 2):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        settle_heap()
    assert done == ["collect", "freeze"] * 4


@pytest.mark.parametrize("program", [None, "pytest.__main__", "pyspark.daemon.mine"])
def test_what_is_not_sparks_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, done: list[str], program: str | None
) -> None:
    runs(monkeypatch, program)
    settle_heap()
    assert done == []
