"""Addresses of the form `host:port`, without the name or protocol of `listeners`, and HTTP URLs of other services.

Owns the syntax. Must not know which settings hold one.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_HTTP_URL = r"https?://(?:\[[0-9a-fA-F:.]+\]|[0-9a-zA-Z\-._]+)(?::(?P<port>[0-9]{1,5}))?(?:/[0-9a-zA-Z\-._~/%]*)?"
HTTP_URLS_MAX = 16
_HOST_AND_PORT = r"(?:\[(?P<address>[0-9a-fA-F:.%]*)\]|(?P<host>[0-9a-zA-Z\-._]*)):(?P<port>[0-9]{1,5})"
PORT_MAX = 65535
LOOPBACK = "127.0.0.1"


class HostAndPort(NamedTuple):
    """An address. An empty host means all addresses; port 0 means any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "HostAndPort":
        """Parse an address; an IPv6 one is in brackets.

        Raises:
            ValueError: the text is not an address.
        """
        match = re.fullmatch(_HOST_AND_PORT, text, re.ASCII)
        if match is None or int(match["port"]) > PORT_MAX:
            raise ValueError(text)
        return cls(match["address"] or match["host"] or "", int(match["port"]))


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches what is bound to `host`, a name or an address."""
    return host == "localhost" or host.startswith("127.") or host == "::1"


def host_and_port_problem(text: str | None) -> str | None:
    """Return what was expected if a text is not an address; None is valid."""
    try:
        if text is not None:
            HostAndPort.parse(text)
    except ValueError:
        return f"Expected host:port with a port from 0 to {PORT_MAX}"
    return None


def http_urls_problem(texts: Sequence[str]) -> str | None:
    """Return what was expected if one of several texts is not an HTTP URL, or if there are too many.

    A URL must not have a user or a password, as URLs appear in messages and on pages.
    """
    if len(texts) > HTTP_URLS_MAX:
        return f"Expected at most {HTTP_URLS_MAX} URLs, not {len(texts)}"
    for at, text in enumerate(texts, 1):
        match = re.fullmatch(_HTTP_URL, text, re.ASCII)
        if match is None or not 0 < int(match["port"] or 80) <= PORT_MAX:
            return f"Expected http://host:port or https://host:port as URL {at}, without a user, a password or a query"
    return None


def named_urls_problem(texts: Sequence[str]) -> str | None:
    """Return what was expected if one of several texts is not a name with an HTTP URL, `name=http://host:port`."""
    pairs = [text.partition("=") for text in texts]
    for at, (name, _, _) in enumerate(pairs, 1):
        if not re.fullmatch(r"[\w.-]{1,40}", name):
            return (
                f"Expected name=http://host:port as element {at}, the name with up to 40 letters, digits, '.', '_', '-'"
            )
    names = [name for name, _, _ in pairs]
    if len(set(names)) < len(names):
        return "Expected each name once"
    return http_urls_problem([url for _, _, url in pairs])
