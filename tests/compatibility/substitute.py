"""Runs a program with aioproducer's class in place of aiokafka's if PRODUCER is "aioproducer".

`python substitute.py program.py` runs in another environment, which has only the package of this repository.
"""

from __future__ import annotations

import os
import runpy
import sys

import aiokafka
import aiokafka.producer

from aioproducer.compat.aiokafka import AIOKafkaProducer


def substitute() -> None:
    """Replace the class."""
    if os.environ["PRODUCER"] == "aioproducer":
        aiokafka.AIOKafkaProducer = aiokafka.producer.AIOKafkaProducer = AIOKafkaProducer


if __name__ == "__main__":
    substitute()
    runpy.run_path(sys.argv[1], run_name="__main__")
