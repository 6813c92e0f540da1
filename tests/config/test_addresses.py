"""Addresses in one setting."""

import re

import pytest

from config.addresses import HostAndPort, host_and_port_problem


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7071", "127.0.0.1", 7071),
        ("my-host.example:0", "my-host.example", 0),
        (":65535", "", 65535),
        ("[::1]:80", "::1", 80),
    ],
)
def test_valid_addresses_are_parsed(text: str, host: str, port: int) -> None:
    assert HostAndPort.parse(text) == (host, port)
    assert host_and_port_problem(text) is None


@pytest.mark.parametrize(
    "text", ["", ":", "host", "host:", "host:65536", "::1:80", "http://host:1", "host:1/x", "host:-1"]
)
def test_malformed_addresses_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        HostAndPort.parse(text)
    assert host_and_port_problem(text) == "Expected host:port with a port from 0 to 65535"


def test_unset_address_is_valid() -> None:
    assert host_and_port_problem(None) is None
