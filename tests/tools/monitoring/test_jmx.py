"""kafka-jmx: metrics of a running broker in each format, and what goes wrong."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.in_process import running_broker
from tests.support.processes import closed_port
from tests.tools.conftest import Outcome, RunTool, run_module
from tools.client.bootstrap import require_reachable
from tools.monitoring import jmx as jmx_tool

ROOT = Path(__file__).resolve().parents[3]
COUNT = "kafka.server:type=ReplicaManager,name=PartitionCount"


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    async with running_broker(tmp_path, {"metrics.http.listener": "127.0.0.1:0"}) as broker:
        await broker.create_topic("t", 3)
        assert broker.metrics_port is not None
        yield broker.metrics_port


async def jmx(*arguments: str) -> Outcome:
    return await asyncio.to_thread(run_module, "monitoring.jmx", *arguments)


async def test_values_in_every_format(port: int) -> None:
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
    found = await jmx("--jmx-url", url, "--object-name", COUNT, "--one-time")
    assert re.fullmatch(rf'"time","{COUNT}:Value"\n\d{{13}},3\n', found.stdout)
    assert (found.status, found.stderr) == (0, "")
    for form, line in (("properties", f"{COUNT}:Value=3"), ("csv", f'{COUNT}:Value,"3"'), ("tsv", f"{COUNT}:Value\t3")):
        options = ("--object-name", COUNT, "--reporting-interval", "-1", "--report-format", form)
        assert (await jmx("--jmx-url", f"http://127.0.0.1:{port}", *options)).stdout.splitlines()[1] == line


async def test_patterns_attributes_and_dates(port: int) -> None:
    found = await jmx(
        *("--jmx-url", f"http://127.0.0.1:{port}", "--one-time", "--date-format", "yyyy-MM-dd HH:mm:ss,SSS"),
        *("--object-name", "kafka.server:type=BrokerTopicMetrics,name=Bytes*", "--attributes", "Count,RateUnit"),
    )
    head, row = found.stdout.splitlines()
    assert head.count(":Count") == head.count(":RateUnit") == 3
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3},0,SECONDS,", row)


async def test_error_is_one_line_with_status_1(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    missing = await jmx("--jmx-url", url, "--object-name", "kafka.server:type=Nothing", "--one-time")
    assert (missing.status, missing.stdout) == (1, "")
    assert "kafka.server:type=Nothing" in missing.stderr
    for arguments, text in (
        (("--jmx-url", "ftp://x"), "Invalid jmx-url ftp://x"),
        (("--jmx-url", url, "--report-format", "xml"), "Cannot parse argument 'xml' of option report-format"),
        (("--jmx-url", url, "--date-format", "Q"), "Invalid date-format Q"),
    ):
        refused = await jmx(*arguments, "--one-time")
        assert refused.status == 1
        assert text in refused.stderr.splitlines()[0]


@pytest.mark.parametrize("address", ["http://127.0.0.1:{}", "service:jmx:rmi:///jndi/rmi://127.0.0.1:{}/jmxrmi"])
def test_a_dead_address_is_one_line(monkeypatch: pytest.MonkeyPatch, run: RunTool, address: str) -> None:
    monkeypatch.setattr(require_reachable, "__defaults__", (0.2,))
    with closed_port() as port:
        found = run(jmx_tool.main, "--jmx-url", address.format(port), "--one-time")
    assert (found.status, found.stdout) == (1, "")
    assert found.stderr == f"No broker at 127.0.0.1:{port}: Connection refused. Does it run at this address?\n"


def test_server_without_http_is_one_line(run: RunTool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        threading.Thread(target=_respond_with_nonsense, args=(server,), daemon=True).start()
        found = run(jmx_tool.main, "--jmx-url", f"http://127.0.0.1:{port}", "--one-time")
    assert (found.status, found.stdout) == (1, "")
    assert found.stderr.startswith(f"Could not read http://127.0.0.1:{port}/jolokia: ")
    assert found.stderr.count("\n") == 1


def _respond_with_nonsense(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nno JSON")
