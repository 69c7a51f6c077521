"""Log records that tests of `aioproducer.contrib.logging` find in the topic."""

from __future__ import annotations

import json
from typing import Any

from aioproducer.testing import ThreadedCluster


def logged(cluster: ThreadedCluster) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in cluster.records("logs", 0)]


def messages(cluster: ThreadedCluster) -> list[str]:
    return [each["message"] for each in logged(cluster)]
