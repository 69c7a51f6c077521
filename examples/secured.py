"""TLS and a login, with a password that changes while the program runs.

This one brings its own cluster, which speaks TLS and asks for logins (it needs the extra `testing`):

    python examples/secured.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from aioproducer import AuthenticationFailed, Producer
from aioproducer.testing import Cluster


def producer_for(bootstrap_servers: str, secrets: Path) -> Producer:
    """Return a producer whose secrets are files, as a vault or Kubernetes writes them."""

    def login() -> tuple[str, str]:  # asked at each login, so a new password needs no restart
        return "shop", (secrets / "password").read_text(encoding="utf-8").strip()

    return Producer(
        bootstrap_servers,
        security_protocol="SASL_SSL",
        ssl_truststore_location=secrets / "ca.pem",  # read again when it changes
        sasl_mechanism="SCRAM-SHA-512",
        sasl_credentials=login,
    )


async def main(secrets: Path) -> None:
    """Send, change certificate and password, send again; then be refused."""
    async with Cluster(security_protocol="SASL_SSL", users={"shop": "first"}) as cluster:
        (secrets / "ca.pem").write_text(cluster.ca_pem, encoding="utf-8")
        (secrets / "password").write_text("first", encoding="utf-8")
        async with producer_for(cluster.bootstrap_servers, secrets) as producer:
            sent = await producer.send("orders", b"one")
            print(f"acknowledged: offset {sent.offset}")

            cluster.users["shop"] = "second"
            cluster.renew_certificates(new_authority=True)
            (secrets / "ca.pem").write_text(cluster.ca_pem, encoding="utf-8")
            (secrets / "password").write_text("second", encoding="utf-8")
            cluster.disconnect(1)  # as when the broker is restarted: the next connection has to log in
            sent = await producer.send("orders", b"two")
            print(f"acknowledged: offset {sent.offset}, with the new password and certificate")

        (secrets / "password").write_text("third", encoding="utf-8")
        try:
            async with producer_for(cluster.bootstrap_servers, secrets):
                pass
        except AuthenticationFailed as error:
            print(f"{type(error).__name__}: by {error.mechanism}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
