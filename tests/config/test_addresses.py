"""Addresses in one setting."""

import re

import pytest

from config.addresses import HostAndPort, host_and_port_problem, http_urls_problem, named_urls_problem


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


@pytest.mark.parametrize(
    "texts",
    [[], ["http://a:8083"], ["http://a", "https://b.example:1/connect/"], ["http://[::1]:80", "http://10.0.0.1:1"]],
)
def test_http_urls_are_valid(texts: list[str]) -> None:
    assert http_urls_problem(texts) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a:8083",
        "ftp://a",
        "http://",
        "http://a:0",
        "http://a:65536",
        "http://user:password@a",
        "http://a/?b",
        "http://a b",
    ],
)
def test_an_http_url_that_is_malformed_or_has_a_password_is_rejected_without_naming_it(text: str) -> None:
    problem = "Expected http://host:port or https://host:port as URL 2, without a user, a password or a query"
    assert http_urls_problem(["http://a", text]) == problem


def test_more_than_sixteen_http_urls_are_rejected() -> None:
    assert http_urls_problem(["http://a"] * 17) == "Expected at most 16 URLs, not 17"


def test_named_urls_have_different_names() -> None:
    assert named_urls_problem(["a=http://a:1", "b.c-d_e=https://b"]) is None
    for texts, problem in (
        (["http://a"], "Expected name=http://host:port as element 1"),
        (["a=http://a", "=http://b"], "Expected name=http://host:port as element 2"),
        (['a"=http://a'], "Expected name=http://host:port as element 1"),
        (["a=http://a", "a=http://b"], "Expected each name once"),
        (["a=ftp://a"], "Expected http://host:port or https://host:port as URL 1"),
    ):
        assert (named_urls_problem(texts) or "").startswith(problem)
