"""Runs a program with our class in the place of aiokafka's, if DOOR says "ours": `python through.py program.py`.

It runs in another environment, with nothing of ours on the path but the package.
"""

from __future__ import annotations

import os
import runpy
import sys

import aiokafka
import aiokafka.producer

from aioproducer.compat.aiokafka import AIOKafkaProducer


def put_in_place() -> None:
    """Patch the class, and nothing else."""
    if os.environ["DOOR"] == "ours":
        aiokafka.AIOKafkaProducer = aiokafka.producer.AIOKafkaProducer = AIOKafkaProducer


if __name__ == "__main__":
    put_in_place()
    runpy.run_path(sys.argv[1], run_name="__main__")
