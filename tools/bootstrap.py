"""Addresses of brokers on a command line.

Owns the syntax. Must not know how an address is reached.
"""

import re
from typing import NamedTuple

from tools.command_line import UsageError, warn

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
