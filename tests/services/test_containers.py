"""The files of examples/containers: valid for Compose and Kubernetes, and true of the service."""

from __future__ import annotations

import asyncio
import copy
import re
import socket
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

from aioproducer.testing import ThreadedCluster
from examples.fastapi_app import app as fastapi_app
from tests.kafka.apache import jars
from tests.services.serving import APPS, AT_MOST_S, program

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/containers"
COMPOSE = (FOLDER / "compose.yaml").read_text()
MANIFESTS: list[dict[str, Any]] = [*yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())]
DEPLOYMENT, SERVICE = MANIFESTS
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
IN_APP = fastapi_app.REQUESTS_TIMEOUT_S + fastapi_app.CLOSE_TIMEOUT_S


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest["kind"])
def test_manifest_is_valid(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_invalid_manifest_is_refused() -> None:
    wrong = copy.deepcopy(DEPLOYMENT)
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 40
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.30", strict=True)


def test_compose_file_is_valid() -> None:
    PyCompose.from_yaml(COMPOSE).validate()
    with pytest.raises(ValueError, match="stop_grace"):
        PyCompose.from_yaml(COMPOSE.replace("stop_grace_period", "stop_grace"))


def test_grace_periods_are_longer_than_the_shutdown() -> None:
    (*_, before) = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert POD["terminationGracePeriodSeconds"] > int(before) + IN_APP
    assert seconds(yaml.safe_load(COMPOSE)["services"]["shop"]["stop_grace_period"]) > IN_APP
    page = (ROOT / "docs/containers.md").read_text()
    assert re.findall(r"\| (\d+) s \|$", page, re.MULTILINE) == [
        before, str(fastapi_app.REQUESTS_TIMEOUT_S), str(fastapi_app.CLOSE_TIMEOUT_S)
    ]  # fmt: skip


def test_startup_probe_allows_the_bootstrap_timeout() -> None:
    set_here = {each["name"]: each["value"] for each in CONTAINER["env"]}
    in_compose = yaml.safe_load(COMPOSE)["services"]["shop"]["environment"]
    program = Path(fastapi_app.__file__).read_text()
    for name in {*set_here, *in_compose}:
        assert f'os.environ.get("{name}"' in program
    probe = CONTAINER["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > int(set_here["BOOTSTRAP_TIMEOUT_MS"]) / 1000


def test_probes_name_routes_and_ports_of_the_service() -> None:
    routes = {route.path for route in fastapi_app.app.routes}  # type: ignore[attr-defined]
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert CONTAINER[probe]["httpGet"]["path"] in routes
        assert CONTAINER[probe]["httpGet"]["port"] in ports
    assert {port["targetPort"] for port in SERVICE["spec"]["ports"]} <= set(ports)
    assert f"PORT={ports['http']}" in (FOLDER / "Dockerfile").read_text()
    assert SERVICE["spec"]["selector"] == DEPLOYMENT["spec"]["template"]["metadata"]["labels"]


def test_container_has_one_cpu_and_equal_limits() -> None:
    resources = CONTAINER["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["cpu"] == "1"


def test_image_is_built_from_files_that_exist() -> None:
    for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines():
        assert not line.startswith("!") or (ROOT / line[1:]).exists(), line
    assert f"apache/kafka:{jars.VERSION}" in COMPOSE
    build = yaml.safe_load(COMPOSE)["services"]["shop"]["build"]
    context = (FOLDER / build["context"]).resolve()
    assert (context / build["dockerfile"]).resolve() == FOLDER / "Dockerfile"


@pytest.mark.slow
@pytest.mark.parametrize("app", APPS)
async def test_service_waits_for_its_brokers(app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOTSTRAP_TIMEOUT_MS", str(AT_MOST_S * 1000))
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]

    async def served() -> int:
        async with program(app, f"127.0.0.1:{port}") as service, httpx.AsyncClient() as client:
            return (await client.get(f"{service.base_url}/ready")).status_code

    asking = asyncio.create_task(served())
    await asyncio.sleep(2)
    assert not asking.done()
    with ThreadedCluster(topics={"orders": 1, "clicks": 1}, port=port):
        assert await asking == 200
