"""Programs and features of the machine that tests need, and the reaction if one is missing.

A test skips with one line that says how to install a missing program. In CI no test may skip, because a failed download
would look like success.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.java import UnavailableError


@contextmanager
def skip_when_unavailable() -> Iterator[None]:
    """Turn `UnavailableError` into a skip, except where the environment variable CI is set: there it stays an error."""
    try:
        yield
    except UnavailableError as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


def need_ipv6() -> None:
    """Raise UnavailableError unless the loopback interface has an IPv6 address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        how = "sysctl net.ipv6.conf.lo.disable_ipv6=0, in a container --sysctl or --network host"
        raise UnavailableError(f"needs IPv6 on the loopback interface ({error}): {how}") from error


def need_command(name: str, package: str) -> None:
    """Raise UnavailableError unless a program of that name is in PATH."""
    if shutil.which(name) is None:
        raise UnavailableError(f"needs {name}: apt-get install {package}")
