"""Schema registry for tests of confluent-kafka's serializers and deserializers, over HTTP."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class RegistryFake:
    """Registers every schema, and finds all of them compatible."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        """As registered: with id, guid, subject and version."""
        self.requests: list[str] = []
        self.url = ""

    def answer(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the registry's response; None for an unknown path."""
        self.requests.append(f"{method} {path}")
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "POST", ["subjects", subject, "versions"]:
                known = self._find(subject=subject, schema=body["schema"])
                return known if known is not None else self._register(subject, body)
            case "POST", ["subjects", subject]:
                return self._find(subject=subject, schema=body["schema"])
            case "GET", ["subjects", subject, "versions", "latest"]:
                return self._find(subject=subject)
            case "GET", ["schemas", "ids", number]:
                return self._find(id=int(number))
            case "GET", ["schemas", "guids", guid]:
                return self._find(guid=guid)
        return None

    def _find(self, **wanted: Any) -> dict[str, Any] | None:
        return next((each for each in reversed(self.schemas) if wanted.items() <= each.items()), None)

    def _register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        schema = {
            "id": len(self.schemas) + 1,
            "guid": str(uuid.uuid4()),
            "subject": subject,
            "version": 1 + sum(each["subject"] == subject for each in self.schemas),
            "schema": body["schema"],
            "schemaType": body.get("schemaType", "AVRO"),
        }
        self.schemas.append(schema)
        return schema


@contextmanager
def registry() -> Iterator[RegistryFake]:
    """Serve one on loopback, on a thread of its own."""
    fake = RegistryFake()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: dict[str, Any]) -> None:
            found = fake.answer(self.command, urlsplit(self.path).path, body)
            answer = {"error_code": 40401, "message": "not found"} if found is None else found
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        fake.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()
