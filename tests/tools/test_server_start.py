"""kafka-server-start: invalid settings, addresses and folders in use, and a successful start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from milena_broker import __version__
from tests.support.broker import BrokerProcess
from tests.tools.conftest import ROOT, Outcome, RunTool, run_module
from tools import server_start

SAMPLE = str(ROOT / "config" / "server.properties")


@pytest.mark.parametrize("arguments", [(), ("--help",), (SAMPLE, "--help")])
def test_missing_arguments_print_the_usage(run: RunTool, arguments: tuple[str, ...]) -> None:
    outcome = run(server_start.main, *arguments)
    assert outcome == Outcome(
        1, "", "USAGE: kafka-server-start [-daemon] server.properties [--override property=value]*\n"
    )


def test_version_prints_the_line_of_kafka_and_then_that_of_milena(run: RunTool) -> None:
    expected = f"3.9.1 (Commit:f745dfdcee2b9851)\nMilena {__version__}\n"
    assert run(server_start.main, "--version") == Outcome(0, expected, "")


@pytest.mark.parametrize(
    ("arguments", "first_line"),
    [
        (("--nosuch",), "nosuch is not a recognized option"),
        (("--override",), "Option override requires an argument"),
        (("--override", "broker.id"), "--override expects property=value, found 'broker.id'"),
        (("--override", "=1"), "--override expects property=value, found '=1'"),
    ],
)
def test_invalid_options_are_usage_errors(run: RunTool, arguments: tuple[str, ...], first_line: str) -> None:
    outcome = run(server_start.main, SAMPLE, *arguments)
    assert outcome.status == 1
    assert outcome.stderr.splitlines() == [first_line, server_start.USAGE]


def test_unreadable_file_is_reported(run: RunTool, tmp_path: Path) -> None:
    missing = tmp_path / "none.properties"
    assert run(server_start.main, str(missing)) == Outcome(1, "", f"Cannot read {missing}: No such file or directory\n")
    broken = tmp_path / "broken.properties"
    broken.write_text("broker.id = \\u12")
    assert run(server_start.main, str(broken)).stderr.startswith(f"Cannot read {broken}: a \\u escape needs four")


def test_every_invalid_setting_is_reported(run: RunTool) -> None:
    overrides = ("--override", "log.segment.bytes=1g", "--override=num.io.threads=0", "--override", "broker.id=-5")
    outcome = run(server_start.main, SAMPLE, *overrides)
    assert outcome.status == 1
    assert outcome.stdout == ""
    assert outcome.stderr.splitlines() == [
        "Invalid value 1g for configuration log.segment.bytes: Not a number of type INT",
        "Invalid value 0 for configuration num.io.threads: Value must be at least 1",
        "Invalid value -5 for configuration broker.id: Value must be from -1 to reserved.broker.max.id (1000)",
    ]


def start(settings: Path, *arguments: str) -> Outcome:
    """Run a start that must fail."""
    return run_module("server_start", str(settings), *arguments, timeout_s=30)


def settings_file(folder: Path, **values: str) -> Path:
    path = folder / "server.properties"
    settings = {
        "broker.id": "0",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder / "data"),
        **{key.replace("_", "."): value for key, value in values.items()},
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def last_line(outcome: Outcome) -> str:
    assert outcome.status == 1
    assert "Traceback" not in outcome.stderr
    return outcome.stderr.splitlines()[-1]


def test_port_in_use_stops_the_start(broker: BrokerProcess, tmp_path: Path) -> None:
    outcome = start(settings_file(tmp_path, listeners=f"PLAINTEXT://{broker.bootstrap}"))
    assert str(broker.port) in last_line(outcome)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("text", ["7071", "localhost", "localhost:port", ":65536", "http://localhost:7071", "a b:1"])
def test_invalid_metrics_address_stops_the_start(run: RunTool, text: str) -> None:
    outcome = run(server_start.main, SAMPLE, "--override", f"metrics.http.listener={text}")
    assert outcome == Outcome(
        1,
        "",
        f"Invalid value {text} for configuration metrics.http.listener: "
        "Expected host:port with a port from 0 to 65535\n",
    )


@pytest.mark.parametrize("text", ["http", "-1", "70000", "7071:7072"])
def test_invalid_jmx_port_stops_the_start(run: RunTool, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("JMX_PORT", text)
    outcome = run(server_start.main, SAMPLE)
    assert outcome.status == 1
    assert outcome.stderr == (
        f"Invalid value {text} for configuration JMX_PORT (environment): Expected a port from 0 to 65535\n"
    )


def test_metrics_port_in_use_stops_the_start(broker: BrokerProcess, tmp_path: Path) -> None:
    outcome = start(settings_file(tmp_path, metrics_http_listener=f"127.0.0.1:{broker.port}"))
    assert f"metrics.http.listener cannot listen on 127.0.0.1:{broker.port}" in last_line(outcome)
    assert not (tmp_path / "data").exists()


def test_log_dir_that_cannot_be_created_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = start(settings_file(tmp_path, log_dirs=str(tmp_path / "file" / "data")))
    assert str(tmp_path / "file" / "data") in last_line(outcome)


def test_locked_log_dir_stops_the_start(broker: BrokerProcess, tmp_path: Path) -> None:
    outcome = start(settings_file(tmp_path, log_dirs=str(broker.log_dir)))
    assert str(broker.log_dir) in last_line(outcome)


def test_server_starts_serves_and_stops(tmp_path: Path) -> None:
    settings = settings_file(tmp_path, log_segment_byte="1", ssl_key_password="hunter2", num_network_threads="4")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tools.server_start", str(settings), "--override", "num.partitions=7"],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "started" in line:
            break
    process.send_signal(signal.SIGTERM)
    lines += process.stderr.readlines()
    process.stderr.close()
    assert process.wait(30) == 0
    log = "".join(lines)
    assert "INFO num.partitions is set by an override to 7 (kafka.server.KafkaConfig)\n" in log
    assert "WARN Unknown key log.segment.byte is kept, but the broker does not read it; the nearest known key is" in log
    assert "WARN num.network.threads has no effect: one event loop serves all connections" in log
    assert "WARN offsets.topic.replication.factor=3 cannot be met by one broker: " in log
    assert "INFO KafkaConfig values:\n\tadvertised.listeners = null\n" in log
    assert "\tnum.partitions = 7\n" in log
    assert "\tssl.key.password = [hidden]\n" in log
    assert "hunter2" not in log
    assert "INFO Kafka version: 3.9.1 " in log
    assert "INFO Kafka commitId: f745dfdcee2b9851 " in log
    assert "INFO [KafkaServer id=0] started " in log
    assert log.index("INFO [KafkaServer id=0] shutting down ") < log.index(
        "INFO [KafkaServer id=0] shut down completed "
    )


@pytest.mark.parametrize(("mode", "is_exposed"), [(0o600, False), (0o640, True), (0o644, True)])
def test_passwords_that_others_can_read_are_warned_about(tmp_path: Path, mode: int, is_exposed: bool) -> None:
    path = tmp_path / "server.properties"
    path.write_text("ssl.key.password=secret\nbroker.id=1\n")
    path.chmod(mode)
    warning = server_start._exposed_secrets(path)
    assert (warning is not None) == is_exposed
    if warning is not None:
        assert "ssl.key.password" in warning
        assert "secret\n" not in warning
