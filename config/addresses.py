"""An address in one setting: `host:port`, without a name or a protocol as `listeners` has them.

Owns the syntax. Must not know which settings hold one.
"""

import re
from typing import NamedTuple

_HOST_AND_PORT = re.compile(
    r"(?:\[(?P<address>[0-9a-fA-F:.%]*)\]|(?P<host>[0-9a-zA-Z\-._]*)):(?P<port>[0-9]{1,5})", re.ASCII
)
PORT_MAX = 65535


class HostAndPort(NamedTuple):
    """An empty host is every address; port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "HostAndPort":
        """The address that a text names, an IPv6 one in brackets. Raises ValueError."""
        match = _HOST_AND_PORT.fullmatch(text)
        if match is None or int(match["port"]) > PORT_MAX:
            raise ValueError(text)
        return cls(match["address"] or match["host"] or "", int(match["port"]))


def host_and_port_problem(text: str | None) -> str | None:
    """What was expected, when a text names no address; unset is right."""
    try:
        if text is not None:
            HostAndPort.parse(text)
    except ValueError:
        return f"Expected host:port with a port from 0 to {PORT_MAX}"
    return None
