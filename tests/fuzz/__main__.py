"""Fuzzing of every decoder against bounded time and memory: make fuzz MINUTES=5, or one seed again: --seed N.

Each seed picks a decoder and mutates a valid input. An error other than the decoder's own, more time or more memory than
the input justifies ends the run with the seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import cache

from tests.fuzz.decoders import Decoder, decoders

SECONDS = 0.5
"""CPU time that any input may take; a busy machine takes several times the usual."""
SECONDS_PER_MIB = 4.0
MEMORY = 3 * 1024 * 1024
"""Bytes that any input may take: a decompressed batch has up to 1 MiB."""
MEMORY_PER_BYTE = 400
MEASURED = 20
"""Inputs per measurement of memory, which makes decoding several times slower."""
EXTREMES = (
    b"\xff",
    b"\x00",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
)


class Finding(AssertionError):
    """A decoder broke a promise."""


@cache
def all_decoders() -> tuple[Decoder, ...]:
    """Return the decoders, made once."""
    return tuple(decoders())


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return *data* with some bytes changed, removed, repeated or cut."""
    for _ in range(rng.choice([0, 1, 1, 2, 5, 20])):
        at, length = rng.randrange(len(data) + 1), rng.choice([0, 1, 2, 4, 8, 50])
        match rng.randrange(4):
            case 0:
                insertion = rng.randbytes(length)
            case 1:
                insertion = rng.choice(EXTREMES)
            case 2:
                insertion = data[at : at + length] * rng.choice([2, 3, 1000])
            case _:
                insertion = b""
        data = data[:at] + insertion + data[at + rng.choice([0, length]) :]
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data


def play(seed: int, *, measure: bool) -> str:
    """Decode the input of *seed* and return the decoder's name. Raises: Finding."""
    rng = random.Random(seed)
    decoder = rng.choice(all_decoders())
    data = rng.randbytes(rng.randrange(300)) if rng.random() < 0.1 else mutated(decoder.samples(rng), rng)
    taken = _memory(lambda: _decode(decoder, data)) if measure else _seconds(lambda: _decode(decoder, data))
    allowed = (
        MEMORY + MEMORY_PER_BYTE * len(data) if measure else SECONDS + SECONDS_PER_MIB * len(data) / 2**20
    )
    if taken > allowed:
        what = "bytes" if measure else "s"
        raise Finding(
            f"seed {seed}: {decoder.name} takes {taken:,.3f} {what} for {len(data):,} bytes of input"
        )
    return decoder.name


def _decode(decoder: Decoder, data: bytes) -> None:
    try:
        decoder.decode(data)
    except decoder.errors:
        return
    except Exception as error:
        raise Finding(f"{decoder.name} raises {error!r} for {data[:200]!r}") from error


def _seconds(call: Callable[[], None]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began


def _memory(call: Callable[[], None]) -> float:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    """Fuzz for some minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    if arguments.seed is not None:
        for measure in (False, True):
            sys.stdout.write(f"{play(arguments.seed, measure=measure)}\n")
        return
    first, until, seen = random.randrange(10**9), time.monotonic() + 60 * arguments.minutes, set[str]()
    seed = first
    try:
        while time.monotonic() < until:
            seen.add(play(seed, measure=not seed % MEASURED))
            seed += 1
    except Finding as finding:
        sys.exit(f"seed {seed}: {finding}")
    sys.stdout.write(
        f"{seed - first:,} inputs from seed {first} on, {len(seen)} of {len(all_decoders())} decoders: no finding\n"
    )


if __name__ == "__main__":
    main()
