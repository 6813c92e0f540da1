"""Addresses of brokers."""

import socket
from importlib import import_module

import pytest

from tests.support.processes import closed_port
from tests.tools.conftest import RunTool
from tools.base.command_line import UnreachableError, UsageError
from tools.client import bootstrap
from tools.client.bootstrap import Endpoint, parse_bootstrap, require_reachable


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


class VirtualTime:
    """Stands for the module `time`: only sleeping takes time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_closed_port_is_one_line_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    time = VirtualTime()
    monkeypatch.setattr(bootstrap, "time", time)
    with closed_port() as port, pytest.raises(UnreachableError) as caught:
        require_reachable([Endpoint("127.0.0.1", port)], 0.3)
    assert time.now_s == pytest.approx(0.3)
    expected = f"No broker at 127.0.0.1:{port}: Connection refused. Does it run at this address?"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("admin.topics", ("--list",)),
        ("records.console_consumer", ("--topic", "t")),
        ("records.console_producer", ("--topic", "t")),
        ("admin.consumer_groups", ("--list",)),
        ("monitoring.lag", ("--listen", "127.0.0.1:0")),
        ("monitoring.monitor", ("--listen", "127.0.0.1:0")),
    ],
)
def test_every_tool_reports_a_dead_address_in_one_line(
    run: RunTool, monkeypatch: pytest.MonkeyPatch, module: str, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(require_reachable, "__defaults__", (0.2,))
    monkeypatch.setattr("tools.client.admin_client.REACH_TIMEOUT_S", 0.2)
    with closed_port() as port:
        tool = import_module(f"tools.{module}")
        outcome = run(tool.main, "--bootstrap-server", f"127.0.0.1:{port}", *arguments)
    assert outcome.status == 1
    assert outcome.stderr == f"No broker at 127.0.0.1:{port}: Connection refused. Does it run at this address?\n"


def test_one_of_several_addresses_is_enough() -> None:
    with closed_port() as port, socket.create_server(("127.0.0.1", 0)) as server:
        require_reachable([Endpoint("127.0.0.1", port), Endpoint(*server.getsockname())], 1)
