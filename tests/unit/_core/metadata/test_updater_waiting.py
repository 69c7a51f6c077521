"""The updater's first contact, repeated until a timeout."""

from __future__ import annotations

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer.errors import AuthenticationFailed, ConnectionFailed, ProducerError
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.metadata.fakes import now, settings
from tests.unit._core.metadata.updater_rig import Setup

BACKOFF = Backoff(1.0, 1.0, jitter=0.0)


def failing(updater: MetadataUpdater, *errors: ProducerError, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let the next bootstraps fail with *errors*; return their deadlines."""
    deadlines: list[float] = []
    left = list(errors)

    async def bootstrap(deadline: float) -> None:
        deadlines.append(deadline)
        if left:
            raise left.pop(0)

    monkeypatch.setattr(updater, "bootstrap", bootstrap)
    return deadlines


@in_virtual_time
async def test_bootstrap_is_repeated_with_the_backoff() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        updater = Setup(settings()).updater
        deadlines = failing(updater, *[ConnectionFailed("away")] * 3, monkeypatch=monkeypatch)
        await updater.wait_for_cluster(40.0, 60.0, BACKOFF)
        assert (now(), deadlines) == (3.0, [40.0, 41.0, 42.0, 43.0])


@pytest.mark.parametrize(("timeout_s", "deadlines"), [(0.0, [40.0]), (2.5, [2.5, 2.5, 2.5])])
@in_virtual_time
async def test_waiting_ends_with_the_last_error(timeout_s: float, deadlines: list[float]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        updater = Setup(settings()).updater
        errors = [ConnectionFailed(str(number)) for number in range(9)]
        seen = failing(updater, *errors, monkeypatch=monkeypatch)
        with pytest.raises(ConnectionFailed, match=str(len(deadlines) - 1)):
            await updater.wait_for_cluster(40.0, timeout_s, BACKOFF)
        assert seen == deadlines


@pytest.mark.parametrize("is_refused", [True, False])
@in_virtual_time
async def test_waiting_ends_when_all_addresses_refuse(is_refused: bool) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        updater = Setup(settings()).updater
        updater._source.is_refused = is_refused
        failing(updater, AuthenticationFailed("no"), monkeypatch=monkeypatch)
        if is_refused:
            with pytest.raises(AuthenticationFailed):
                await updater.wait_for_cluster(40.0, 60.0, BACKOFF)
        else:
            await updater.wait_for_cluster(40.0, 60.0, BACKOFF)
        assert now() == (0.0 if is_refused else 1.0)


async def test_updater_is_unreachable_before_the_first_response() -> None:
    assert Setup(settings()).updater.unreachable
