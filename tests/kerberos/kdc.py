"""A Kerberos realm on loopback: MIT's KDC in a folder of its own, gone when the `with` block ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.kafka.apache.broker import HOST, free_ports
from tests.kafka.apache.node import end_with_us

REALM: Final = "LAB"
PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
STARTED: Final = "commencing operation"
_PATH: Final = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"

_KRB5_CONF: Final = """
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1

[realms]
{realm} = {{
    kdc = {host}:{port}
}}

[domain_realm]
localhost = {realm}
"""
_KDC_CONF: Final = """
[kdcdefaults]
kdc_listen = {host}:{port}
kdc_tcp_listen = {host}:{port}

[realms]
{realm} = {{
    database_name = {folder}/principals
    key_stash_file = {folder}/stash
    max_life = 10h
}}

[logging]
kdc = STDERR
"""


class KdcFailed(RuntimeError):
    """The KDC or one of its tools has failed."""


def missing_programs() -> list[str]:
    """Return those of MIT's programs that this machine does not have."""
    return [each for each in PROGRAMS if shutil.which(each, path=_PATH) is None]


class Kdc:
    """A realm with a KDC; `keytab` makes a principal."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clean_up = ExitStack()
        self._reader = threading.Thread()
        [port] = free_ports(1)
        place = {"realm": REALM, "host": HOST, "port": port, "folder": folder}
        self.config: Final = folder / "krb5.conf"
        """What clients and brokers have to know of the realm."""
        self.config.write_text(_KRB5_CONF.format(**place))
        (folder / "kdc.conf").write_text(_KDC_CONF.format(**place))
        self._environment = {
            **os.environ,
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        }

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self._process = subprocess.Popen(
            [shutil.which("krb5kdc", path=_PATH) or "krb5kdc", "-n"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._clean_up.callback(self._end, end_with_us(self._process.pid))
        self._await_started()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clean_up.close()

    def keytab(self, principal: str) -> Path:
        """Make *principal* with a random key; return the file that has it."""
        path = self._folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path

    def ticket(self, principal: str, *, lives: str = "1h") -> Path:
        """Get a ticket for *principal*, whose keytab was made; return the cache that has it."""
        keytab = self._folder / f"{principal.replace('/', '-')}.keytab"
        cache = self._folder / f"{principal}.{lives}.cache"
        self._run("kinit", "-c", f"FILE:{cache}", "-l", lives, "-k", "-t", str(keytab), principal)
        return cache

    def freeze(self) -> None:
        """Let the KDC take connections and answer nothing (SIGSTOP)."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def _await_started(self) -> None:
        """Read the output of the KDC until it serves; a thread reads on, so that a full pipe never blocks it."""
        assert self._process.stderr is not None
        said = b""
        while STARTED.encode() not in said:
            line = self._process.stderr.readline()
            if not line:
                raise KdcFailed(f"krb5kdc ended while starting: {said.decode()}")
            said += line
        self._reader = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._reader.start()

    def _end(self, guard: subprocess.Popen[bytes]) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._reader.is_alive():
            self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
        guard.kill()
        guard.communicate()

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [shutil.which(program, path=_PATH) or program, *arguments],
            check=False,
            env=self._environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise KdcFailed(f"{program} {' '.join(arguments)}: {done.stdout}{done.stderr}")
