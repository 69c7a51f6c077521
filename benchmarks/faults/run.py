"""Run of one scenario with one client. The brokers run in this process, the client in a child process."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from tempfile import TemporaryFile
from typing import IO, Final

from aioproducer.testing import Cluster
from benchmarks.faults import terms
from benchmarks.faults.load import Sent
from benchmarks.faults.scenarios import Scenario
from benchmarks.faults.score import Score, score

CALM_S: Final = 1.0
"""Duration of the load before the fault, in seconds."""
AFTERMATH_S: Final = 2.0
"""Duration of the load after the fault, in seconds."""
START_S: Final = 30.0
"""Time limit for the start of a client, in seconds."""
END_S: Final = 3 * (terms.DELIVERY_TIMEOUT_S + terms.GRACE_S) + 10
"""Time limit for all outcomes, in seconds."""
LINE_BYTES: Final = 1 << 26


async def run_scenario(scenario: Scenario, client: str) -> Score:
    """Return the score of *client* in *scenario*. Raises: RuntimeError if the client's process ends without an answer."""
    async with Cluster(terms.BROKERS, {terms.TOPIC: terms.PARTITIONS}, auto_create_topics=False) as cluster:
        if scenario.before is not None:
            scenario.before(cluster)
        with TemporaryFile() as complaints:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "benchmarks.faults.load", client, cluster.bootstrap_servers),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=complaints,
                limit=LINE_BYTES,
            )
            try:
                began_at, healed_at, sent = await _converse(scenario, cluster, process, complaints)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
        logs = [
            [(record.value or b"").rstrip(b".") for record in cluster.records(terms.TOPIC, partition)]
            for partition in range(terms.PARTITIONS)
        ]
    return score(
        sent,
        logs,
        healed_at=healed_at if scenario.before is None else began_at,
        timeout_s=terms.DELIVERY_TIMEOUT_S + terms.GRACE_S,
    )


async def _converse(
    scenario: Scenario, cluster: Cluster, process: asyncio.subprocess.Process, complaints: IO[bytes]
) -> tuple[float, float, list[Sent]]:
    assert process.stdin is not None
    assert process.stdout is not None
    started = json.loads(await _line(process.stdout, START_S, complaints))
    await asyncio.sleep(CALM_S)
    await scenario.fault(cluster)
    healed_at = time.monotonic()
    await asyncio.sleep(AFTERMATH_S)
    process.stdin.write(b"enough\n")
    sent = [Sent(*row) for row in json.loads(await _line(process.stdout, END_S, complaints))]
    return started["began_at"], healed_at, sent


async def _line(answers: asyncio.StreamReader, timeout_s: float, complaints: IO[bytes]) -> bytes:
    async with asyncio.timeout(timeout_s):
        line = await answers.readline()
    if not line:
        complaints.seek(0)
        raise RuntimeError(
            f"the client's process ended without an answer: {complaints.read().decode()[-2000:]}"
        )
    return line
