"""A key distribution center of MIT Kerberos as a process, with a realm of its own.

Owns: its files below a folder, its port, its principals and their keytabs. Everything that uses it needs the variables
of `environment`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.java import UnavailableError
from tests.support.ports import free_port

REALM = "MILENA.TEST"
PACKAGES = "krb5-kdc krb5-user krb5-admin-server libkrb5-dev libsasl2-modules-gssapi-mit gcc python3-dev"
START_TIMEOUT_S = 20

_PATH = f"{os.environ['PATH']}:/usr/sbin"
_CONFIGURATION = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    ticket_lifetime = {ticket_s}s
    default_ccache_name = FILE:{folder}/cache
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    localhost = {realm}
    127.0.0.1 = {realm}
"""
_CENTER = """\
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        max_life = 1d
    }}
[logging]
    kdc = FILE:{folder}/kdc.log
"""


def need_kerberos() -> None:
    """Raise UnavailableError unless a key distribution center can be started, and the Python package is installed."""
    if not all(shutil.which(name, path=_PATH) for name in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")):
        raise UnavailableError(f"needs MIT Kerberos: apt-get install {PACKAGES}")
    if importlib.util.find_spec("gssapi") is None:
        raise UnavailableError(f"needs the Python package gssapi: apt-get install {PACKAGES}, then bin/test")


def has_kerberos() -> bool:
    try:
        need_kerberos()
    except UnavailableError:
        return False
    return True


class KeyDistributionCenter:
    """A running center of `REALM`. A context manager. Raises UnavailableError if the machine has no Kerberos."""

    def __init__(self, folder: Path, *, ticket_s: int = 3600) -> None:
        need_kerberos()
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.configuration = folder / "krb5.conf"
        self.environment = {"KRB5_CONFIG": str(self.configuration), "KRB5RCACHENAME": f"file2:{folder}/replays"}
        self.port = free_port()
        values = {"realm": REALM, "folder": folder, "port": self.port, "ticket_s": ticket_s}
        self.configuration.write_text(_CONFIGURATION.format(**values))
        (folder / "kdc.conf").write_text(_CENTER.format(**values))
        self._variables = {
            **os.environ,
            **self.environment,
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "PATH": _PATH,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-P", "database secret", "-r", REALM)
        self._process = subprocess.Popen(["krb5kdc", "-n"], env=self._variables, stderr=subprocess.DEVNULL)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                if time.monotonic() > deadline_s or self._process.poll() is not None:
                    self.__exit__(None, None, None)
                    raise
                time.sleep(0.02)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def keytab(self, name: str, principals: Iterable[str], *, lifetime: str = "1 day") -> Path:
        """Return a keytab of new principals; `lifetime` limits their tickets."""
        path = self.folder / f"{name}.keytab"
        lines = "".join(
            f'add_principal -randkey -maxlife "{lifetime}" {principal}\nktadd -k {path} {principal}\n'
            for principal in principals
        )
        self._run("kadmin.local", "-r", REALM, text=lines)
        return path

    def change_key(self, principal: str) -> None:
        """Give a principal another key, so that its keytabs are outdated."""
        self._run("kadmin.local", "-r", REALM, text=f"change_password -randkey {principal}\n")

    def cache(self, keytab: Path, principal: str) -> Path:
        """Return a ticket cache for a principal."""
        path = self.folder / f"{principal.replace('/', '-')}.cache"
        self._run("kinit", "-k", "-t", str(keytab), "-c", str(path), principal)
        return path

    def _run(self, *command: str, text: str = "") -> None:
        done = subprocess.run(
            command, input=text, env=self._variables, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
