"""Addresses of brokers."""

import pytest

from tools.bootstrap import Endpoint, parse_bootstrap
from tools.command_line import UsageError


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("localhost:9092", [Endpoint("localhost", 9092)]),
        (" a:1 , b:2,", [Endpoint("a", 1), Endpoint("b", 2)]),
        ("[::1]:9092", [Endpoint("::1", 9092)]),
        ("10.0.0.1:65535", [Endpoint("10.0.0.1", 65535)]),
    ],
)
def test_addresses_are_parsed(text: str, endpoints: list[Endpoint]) -> None:
    assert parse_bootstrap(text) == endpoints


def test_chroot_is_removed_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_bootstrap("a:1,b:2/kafka") == [Endpoint("a", 1), Endpoint("b", 2)]
    assert "/kafka is ignored" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", ",", "localhost", "localhost:", ":9092", "a:65536", "a:b", "::1:9092", "a b:1"])
def test_invalid_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"Invalid url in bootstrap.servers"):
        parse_bootstrap(text)


def test_endpoints_are_printed_as_they_were_given() -> None:
    assert str(Endpoint("::1", 1)) == "[::1]:1"
    assert str(Endpoint("a", 1)) == "a:1"
