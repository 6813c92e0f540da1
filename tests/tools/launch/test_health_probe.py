"""The health check of the image: which address it chooses, and what it finds there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from config.broker import BrokerConfig
from protocol.messages.api_versions import ApiVersionsResponse
from tests.support.processes import closed_port
from tests.tools.conftest import ROOT
from tests.tools.scripted_broker import ScriptedBroker
from tools.launch.health_probe import choose, main, problem_of
from tools.launch.running_servers import RunningBroker, running_brokers
from tools.launch.served_addresses import Address, addresses_of


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        ([], None),
        (["PLAINTEXT://127.0.0.1:9092"], "PLAINTEXT://127.0.0.1:9092"),
        (["SSL://127.0.0.1:9093", "SASL_PLAINTEXT://127.0.0.1:9094"], "SASL_PLAINTEXT://127.0.0.1:9094"),
        (["SASL_SSL://[::1]:9093"], "SASL_SSL://[::1]:9093"),
        (["PLAINTEXT://127.0.0.1:9092", "http://127.0.0.1:7071"], "http://127.0.0.1:7071"),
        (["SSL://127.0.0.1:9092", "https://127.0.0.1:7071"], "https://127.0.0.1:7071"),
    ],
)
def test_the_address_that_says_most_is_chosen(addresses: Sequence[str], chosen: str | None) -> None:
    found = choose([Address.parse(text) for text in addresses])
    assert (None if found is None else str(found)) == chosen


def test_the_addresses_follow_the_settings() -> None:
    config = BrokerConfig.from_properties(
        {
            "listeners": "INSIDE://0.0.0.0:0,OUTSIDE://:9443,HOST://broker.example:9092",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL,HOST:SSL",
            "advertised.listeners": "INSIDE://a:1,OUTSIDE://b:2,HOST://c:3",
            "inter.broker.listener.name": "INSIDE",
            "metrics.http.listener": "0.0.0.0:0",
            "metrics.http.ssl.enable": "true",
            "log.dirs": "/nowhere",
        },
        {},
    )
    ports = {"INSIDE": 40001, "OUTSIDE": 9443, "HOST": 9092}
    listeners = ["PLAINTEXT://127.0.0.1:40001", "SASL_SSL://127.0.0.1:9443", "SSL://broker.example:9092"]
    assert [str(each) for each in addresses_of(config, ports, None)] == listeners
    assert [str(each) for each in addresses_of(config, ports, 40002)] == [*listeners, "https://127.0.0.1:40002"]


def problem(*addresses: str) -> str | None:
    return problem_of([RunningBroker(1, 7, addresses)])


def test_without_a_broker_or_before_it_serves_clients_the_check_fails() -> None:
    assert problem_of([]) == "no broker runs"
    assert problem() == "broker 7 does not serve clients yet"


def test_a_listener_must_respond() -> None:
    with ScriptedBroker(lambda request: ApiVersionsResponse(api_keys=[])) as broker:
        assert problem(f"PLAINTEXT://127.0.0.1:{broker.port}") is None
        assert problem(f"SASL_PLAINTEXT://127.0.0.1:{broker.port}") is None


@pytest.mark.parametrize("kind", ["http", "https", "PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"])
def test_a_broker_without_an_open_port_is_a_problem(kind: str) -> None:
    with closed_port() as port:
        assert problem(f"{kind}://127.0.0.1:{port}") == "broker 7 accepts no connections"


@pytest.mark.parametrize("kind", ["http", "https", "PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"])
def test_a_port_without_a_response_is_a_problem(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("tools.launch.health_probe.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{kind}://127.0.0.1:{server.getsockname()[1]}"
        found = problem(address)
    assert found is not None
    assert found.startswith(f"broker 7 at {address}: ")
    assert "timed out" in found.lower()


def test_a_listener_that_was_removed_is_not_checked() -> None:
    with closed_port() as port, ScriptedBroker(lambda request: ApiVersionsResponse(api_keys=[])) as broker:
        assert problem(f"PLAINTEXT://127.0.0.1:{port}", f"SASL_PLAINTEXT://127.0.0.1:{broker.port}") is None


@contextmanager
def health_of(status: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/health/live"
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"slow")

        def log_message(self, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(("status", "text"), [(200, None), (401, None), (503, "503 slow")])
def test_the_port_of_the_metrics_reports_the_health(status: int, text: str | None) -> None:
    with health_of(status) as url:
        found = problem(url)
    assert (found is None) == (text is None)
    assert text is None or (found or "").endswith(text)


def test_a_handshake_shows_that_a_listener_with_tls_responds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            server.accept()[0].close()  # whether the port is open
            connection, _ = server.accept()
            with connection:
                assert connection.recv(1)[0] == 22  # a handshake
                connection.sendall(b"\x15\x03\x03\x00\x02\x02\x28")  # the alert handshake_failure

        thread = threading.Thread(target=refuse)
        thread.start()
        assert problem(f"SSL://127.0.0.1:{server.getsockname()[1]}") is None
        thread.join()


def test_a_broker_announces_its_addresses(tmp_path: Path) -> None:
    holder = (
        "import sys; from pathlib import Path; from tools.launch.running_servers import registered\n"
        "with registered(5, Path(sys.argv[1])) as announce:\n"
        "    announce(['PLAINTEXT://127.0.0.1:1', 'http://127.0.0.1:2'])\n"
        "    print('up', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-P", "-c", holder, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        expected = RunningBroker(process.pid, 5, ("PLAINTEXT://127.0.0.1:1", "http://127.0.0.1:2"))
        assert running_brokers(tmp_path) == [expected]
        process.communicate()


def test_the_exit_status_is_that_of_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.launch.health_probe.running_brokers", list)
    assert main() == 1
    assert capsys.readouterr().err == "no broker runs\n"


def test_the_image_uses_the_check() -> None:
    for name in ("Dockerfile", "docker-compose.yml"):
        text = (ROOT / name).read_text()
        assert '".venv/bin/python", "-m", "tools.launch.health_probe"' in text
        assert "bin/kafka-topics" not in text
