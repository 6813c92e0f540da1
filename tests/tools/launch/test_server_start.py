"""kafka-server-start: invalid settings, addresses and folders in use, and a successful start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from base.compiled import form
from milena_broker import __version__
from tests.support.broker import BrokerProcess
from tests.tools.conftest import ROOT, Outcome, RunTool, run_module
from tools.launch import server_start, start_options

SAMPLE = str(ROOT / "config" / "server.properties")
START_LINES_MAX = 10
"""A start fits on a screen together with the command."""


@pytest.mark.parametrize("arguments", [("--help",), (SAMPLE, "--help")])
def test_help_shows_usage_and_examples(run: RunTool, arguments: tuple[str, ...]) -> None:
    outcome = run(server_start.main, *arguments)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith("usage: kafka-server-start")
    assert "--override property=value" in outcome.stdout
    assert "examples:" in outcome.stdout


def test_version_prints_the_line_of_kafka_and_then_that_of_milena(run: RunTool) -> None:
    expected = f"3.9.1 (Commit:f745dfdcee2b9851)\nMilena {__version__}, hot loops {form()}\n"
    assert run(server_start.main, "--version") == Outcome(0, expected, "")


@pytest.mark.parametrize(
    ("arguments", "first_line"),
    [
        (("--nosuch",), "nosuch is not a recognized option"),
        (("--overide", "a=b"), "overide is not a recognized option; did you mean --override?"),
        (("--override",), "argument --override: expected one argument"),
        (("--port", "1"), "--port and --data are for a start without FILE, which has listeners and log.dirs"),
        (("--port", "65536"), "argument --port: 65536: expected a port from 0 to 65535"),
        (("--check=yes",), "argument --check: expected no value, found 'yes'"),
        (("other.properties",), "other.properties is not a recognized option"),
        (("--override", "broker.id"), "--override expects property=value, found 'broker.id'"),
        (("--override", "=1"), "--override expects property=value, found '=1'"),
    ],
)
def test_invalid_options_are_usage_errors(run: RunTool, arguments: tuple[str, ...], first_line: str) -> None:
    outcome = run(server_start.main, SAMPLE, *arguments)
    assert outcome.status == 1
    lines = outcome.stderr.splitlines()
    assert lines[0] == first_line
    assert lines[1].startswith("usage: kafka-server-start")


@pytest.mark.parametrize(
    ("option", "value", "override", "name"),
    [
        ("--port", "9192", "listeners=PLAINTEXT://localhost:9193", "listeners"),
        ("--port", "9192", "port=9193", "port"),
        ("--data", "mine", "log.dirs=other", "log.dirs"),
        ("--data", "mine", "log.dir=other", "log.dir"),
    ],
)
def test_option_and_override_of_one_setting_are_a_usage_error(
    run: RunTool, option: str, value: str, override: str, name: str
) -> None:
    outcome = run(server_start.main, option, value, "--override", override)
    assert outcome.status == 1
    said = f"{option} and --override {name} are the same setting: give one of them"
    assert outcome.stderr.splitlines()[0] == said


def test_check_names_unknown_keys_also_beside_an_error(run: RunTool, tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text("broker.id=x\nlog.segment.byte=1\n")
    outcome = run(server_start.main, "--check", str(settings))
    assert outcome.status == 1
    assert outcome.stdout.startswith("WARN Unknown key log.segment.byte is kept, but the broker does not read it")
    assert outcome.stderr.startswith(f"{settings}:1: Invalid value x for configuration broker.id")


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
    return run_module("launch.server_start", str(settings), *arguments, timeout_s=30)


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
        [
            sys.executable,
            "-P",
            "-m",
            "tools.launch.server_start",
            str(settings),
            "--override",
            "num.partitions=7",
            "--settings",
        ],
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
    assert "INFO set by overrides: num.partitions=7 (kafka.server.KafkaConfig)\n" in log
    assert "WARN Unknown key log.segment.byte is kept, but the broker does not read it; the nearest known key is" in log
    assert "WARN num.network.threads has no effect: one event loop serves all connections" in log
    assert "WARN offsets.topic.replication.factor=3 cannot be met by one broker: " in log
    assert "INFO KafkaConfig values:\n\tadvertised.listeners = null\n" in log
    assert "\tnum.partitions = 7\n" in log
    assert "\tssl.key.password = [hidden]\n" in log
    assert "hunter2" not in log
    assert "INFO Kafka version: 3.9.1, commitId: f745dfdcee2b9851 " in log
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


BROKEN = """\
# a comment
broker.id=1
num.io.threads=many
log.retention.ms=\\
    never
listeners=NOSUCH://:9092
"""


def test_check_reports_all_errors_of_a_file_with_their_lines(run: RunTool, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(BROKEN)
    outcome = run(server_start.main, "--check", str(path))
    assert outcome.status == 1
    places = [line.partition(": ")[0] for line in outcome.stderr.splitlines()]
    assert places == [f"{path}:3", f"{path}:4", f"{path}:6"]


def test_check_reports_what_is_valid_and_not_supported(run: RunTool, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "log.dirs=/nowhere\ngroup.coordinator.rebalance.protocols=consumer\n"
        "listeners=SASL_PLAINTEXT://:9092\ninter.broker.listener.name=SASL_PLAINTEXT\n"
    )
    outcome = run(server_start.main, "--check", str(path))
    assert outcome.status == 1
    assert f"{path}:2: Invalid value consumer for configuration" in outcome.stderr
    assert "GSSAPI" in outcome.stderr


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("zookeeper.ssl.client.enable=true\nzookeeper.ssl.crl.enable=true\n", ["zookeeper.ssl.crl.enable"]),
        ("zookeeper.set.acl=true\n", ["zookeeper.set.acl"]),
        (
            (
                "listeners=SASL_PLAINTEXT://:9092\ninter.broker.listener.name=SASL_PLAINTEXT\n"
                "sasl.enabled.mechanisms=SCRAM-SHA-256\n"
            ),
            ["sasl.mechanism.inter.broker.protocol"],
        ),
        ("metrics.http.listener=127.0.0.1:7071\nmetrics.http.ssl.enable=true\n", ["METRICS_HTTP", "key store"]),
    ],
)
def test_check_reports_the_security_that_a_start_would_refuse(
    run: RunTool, tmp_path: Path, settings: str, words: list[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"broker.id=0\nlog.dirs=/nowhere\nzookeeper.connect=127.0.0.1:1\n{settings}")
    outcome = run(server_start.main, "--check", str(path))
    assert outcome.status == 1
    (line,) = outcome.stderr.splitlines()
    assert [word for word in words if word not in line] == []


def test_check_reports_plug_ins_that_cannot_be_imported_with_their_lines(run: RunTool, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "create.topic.policy.class.name=no.such:Policy\n"
        "alter.config.policy.class.name=pathlib:Path\n"
        "metric.reporters=pathlib:Path,pathlib:Nothing\n"
    )
    outcome = run(server_start.main, "--check", str(path))
    assert outcome.status == 1
    places = [line.partition(": ")[0] for line in outcome.stderr.splitlines()]
    assert places == [f"{path}:1", f"{path}:3"]
    assert "No module named 'no'" in outcome.stderr
    assert "has no attribute 'Nothing'" in outcome.stderr


PRODUCTION = """\
# The file of a broker that ran Kafka 0.8, 2.x and 3.9 in turn
broker.id=0
host.name=127.0.0.1
port=0
log.dirs={folder}/a,{folder}/b
num.network.threads=8
num.io.threads=8
socket.send.buffer.bytes=1048576
queued.max.requests=16
num.partitions=3
default.replication.factor=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
controller.message.queue.size=10
replica.lag.max.messages=4000
log.retention.hours=168
log.retention.hours.per.topic=audit:24
log.flush.interval.ms=10000
log.message.format.version=2.8
metric.reporters=org.apache.kafka.common.metrics.JmxReporter
create.topic.policy.class.name=com.example.NamingPolicy
ssl.provider=BCFIPS
"""


def test_an_operator_brings_a_production_file(run: RunTool, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(PRODUCTION.format(folder=tmp_path))
    outcome = run(server_start.main, "--check", str(path))
    (error,) = outcome.stderr.splitlines()
    assert error.startswith(f"{path}:22: Invalid value com.example.NamingPolicy for configuration create.topic.policy")
    assert "package.module:Class" in error

    (tmp_path / "naming.py").write_text(
        "from broker.settings.policies import PolicyViolation\n\n\n"
        "class NamingPolicy:\n"
        "    def validate(self, request):\n"
        "        if '.' not in request.topic:\n"
        "            raise PolicyViolation(f'{request.topic}: expected team.topic')\n"
    )
    path.write_text(path.read_text().replace("com.example.NamingPolicy", "naming:NamingPolicy"))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    command = [sys.executable, "-P", "-m", "tools.launch.server_start"]
    checked = subprocess.run(
        [*command, "--check", str(path)], check=False, env=environment, capture_output=True, text=True
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    warned = [line.split()[1] for line in checked.stdout.splitlines() if line.startswith("WARN")]
    assert sorted(warned) == [
        "controller.message.queue.size",
        "host.name",
        "log.message.format.version",
        "log.retention.hours.per.topic",
        "num.network.threads",
        "port",
        "replica.lag.max.messages",
        "ssl.provider",
    ]

    process = subprocess.Popen(
        [*command, str(path)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        log = []
        for line in process.stdout:
            log.append(line)
            if "[KafkaServer id=0] started" in line:
                break
        (listening,) = (line for line in log if "listening on PLAINTEXT" in line)
        address = listening.partition("clients connect to ")[2].split()[0]
        for name, status, text in (("plain", 1, "plain: expected team.topic"), ("team.orders", 0, "Created topic")):
            created = run_module("admin.topics", "--bootstrap-server", address, "--create", "--topic", name)
            assert created.status == status, created
            assert text in created.stdout + created.stderr
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_check_of_a_good_file_starts_nothing(run: RunTool, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"log.dirs={tmp_path / 'data'}\nlisteners=PLAINTEXT://localhost:0\n")
    assert run(server_start.main, "--check", str(path)) == Outcome(0, f"{path}: no error\n", "")
    assert not (tmp_path / "data").exists()


def test_a_start_without_a_file_serves_with_defaults(tmp_path: Path) -> None:
    with started("--port", "0", folder=tmp_path) as log:
        assert "listening on PLAINTEXT://localhost:" in log
        assert ", clients connect to localhost:" in log
        assert f"data in {tmp_path}/state/milena/data, cluster id " in log
        assert "KafkaConfig values" not in log
    assert (tmp_path / "state" / "milena" / "data" / "meta.properties").exists()


def test_variables_are_settings_and_topics_when_asked(tmp_path: Path) -> None:
    variables = {
        "KAFKA_CFG_LOG_RETENTION_HOURS": "3",
        "KAFKA_NUM_PARTITIONS": "5",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_SOMETHING": "else",
        "KAFKA_CREATE_TOPICS": "orders:2:1:compact, events",
    }
    options = ("--environment", "--settings", "--port", "0", "--data", str(tmp_path / "data"))
    with started(*options, folder=tmp_path, until="created topic events", **variables) as log:
        assert "\tlog.retention.hours = 3\n" in log
        assert "created topic orders of 2 partitions" in log
        assert "created topic events of 5 partitions" in log
        assert "something" not in log


def test_a_wrong_topic_in_the_environment_is_named(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_CREATE_TOPICS", "orders:many")
    outcome = run(server_start.main, "--environment")
    assert outcome.status == 1
    assert outcome.stderr.startswith("Invalid value orders:many for configuration KAFKA_CREATE_TOPICS (environment)")


@contextmanager
def started(
    *arguments: str, folder: Path, until: str = "[KafkaServer id=0] started", **variables: str
) -> Iterator[str]:
    """Start a broker as a user does; yield its log up to a text."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state"), **variables}
    command = [sys.executable, "-P", "-m", "tools.launch.server_start", *arguments]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if until in line:
                break
        try:
            yield "".join(lines)
        finally:
            process.terminate()
            rest = process.stderr.read()
    assert process.returncode == 0, "".join(lines) + rest
    assert "closed cleanly in " in rest


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a.properties",
        "a.properties --override a=b --override c=d=e",
        "--override=a=b a.properties",
        "--port 0 --data /tmp/x --run-folder run",
        "--port=0 --data=/tmp/x --port 9",
        "--check a.properties --settings --environment",
        "--data -1",
        "-- -odd.properties",
        "-daemon a.properties --version --help",
    ],
)
def test_a_command_line_is_read_as_argparse_reads_it(line: str) -> None:
    arguments = line.split()
    twin = vars(start_options.parser().parse_args(arguments))
    words, given = start_options.read(arguments)
    assert words == [name for name in [twin.pop("file")] if name is not None]
    flags = {option.name.lstrip("-"): option.metavar is None for option in start_options.OPTIONS}
    assert {name: given.get(f"-{name}" if name == "daemon" else f"--{name}") for name in flags} == {
        name: ([""] if value else None) if is_flag else (value or None)
        for name, is_flag in flags.items()
        for value in [twin[name.replace("-", "_")]]
    }


def test_start_prints_at_most_ten_lines_and_a_first_consumer_none(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"num.partitions": "2", "offsets.topic.num.partitions": "3"}) as broker:
        consume_once(broker.port)
    lines = broker.log.read_text().splitlines()
    of_start = next(number for number, line in enumerate(lines, 1) if "[KafkaServer id=0] started" in line)
    assert of_start <= START_LINES_MAX, lines
    assert "shutting down" in lines[of_start]


def consume_once(port: int) -> None:
    """Create a topic by a record, and read it as the first consumer of the broker."""
    client: dict[str, str | int | float | bool | None] = {"bootstrap.servers": f"127.0.0.1:{port}"}
    producer = confluent_kafka.Producer(client)
    producer.produce("first", b"record")
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["first"])
    assert len(consumer.consume(1, 30)) == 1
    consumer.close()
