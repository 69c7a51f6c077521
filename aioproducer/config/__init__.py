"""The configuration of a producer: Kafka's names and defaults, checked before the start."""

from __future__ import annotations

from aioproducer.config.options import ProducerOptions as ProducerOptions
from aioproducer.config.producer_config import ProducerConfig as ProducerConfig
