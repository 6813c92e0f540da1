"""Addresses of brokers on a command line.

Owns the syntax, and the check that one of the addresses accepts connections. Must not know what a broker responds.
"""

import re
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

from tools.base.command_line import UnreachableError, UsageError, warn

REACH_TIMEOUT_S = 4.0  # with the start of the interpreter, a tool ends within 5 seconds
_RETRY_S = 0.2

_ADDRESS = re.compile(
    r"\[(?P<ipv6>[0-9a-fA-F:.%a-z]+)\]:(?P<ipv6_port>[0-9]{1,5})|(?P<host>[^\s:\[\]]+):(?P<port>[0-9]{1,5})"
)


class Endpoint(NamedTuple):
    """One address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Endpoint]:
    """Return the addresses of `host:port,host:port`, without a `/chroot` at the end as in ZooKeeper's lists.

    Raises UsageError.
    """
    addresses, slash, _ = text.partition("/")
    if slash:
        warn(f"{text[len(addresses) :]} is ignored: brokers have no chroot")
    endpoints = [_parse(address) for address in (part.strip() for part in addresses.split(",")) if address]
    if not endpoints:
        raise UsageError(f"Invalid url in bootstrap.servers: '{text}'; expected host:port,host:port")
    return endpoints


def _parse(address: str) -> Endpoint:
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["ipv6_port"] or match["port"]) > 65535:
        raise UsageError(f"Invalid url in bootstrap.servers: '{address}'; expected host:port")
    return Endpoint(match["ipv6"] or match["host"], int(match["ipv6_port"] or match["port"]))


def require_reachable(endpoints: Sequence[Endpoint], timeout_s: float = REACH_TIMEOUT_S) -> None:
    """Return when one of the addresses accepts a connection. Raises UnreachableError after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    failure: OSError = TimeoutError("timed out")
    while (left_s := deadline_s - time.monotonic()) > 0:
        for endpoint in endpoints:
            try:
                socket.create_connection(endpoint, max(left_s / len(endpoints), 0.1)).close()
            except OSError as error:
                failure = error
            else:
                return
        time.sleep(min(_RETRY_S, max(0.0, deadline_s - time.monotonic())))
    raise UnreachableError(unreachable(endpoints, failure))


def unreachable(endpoints: Sequence[Endpoint], failure: OSError) -> str:
    """Return the one line about addresses at which no broker was reached."""
    return f"No broker at {','.join(map(str, endpoints))}: {failure.strerror or failure}. Does it run at this address?"
