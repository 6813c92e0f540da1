"""The thread that writes the log, and the files that it renames."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

from config.log4j import Appender
from tests.support.broker import BrokerProcess
from tools.log_output.log_files import HAS_LINES, Layout, LogWriter, QueuedAppender
from tools.log_output.rolling_file import RollingFile

ROOT = Path(__file__).resolve().parents[3]
HOUR_S = 3600


def record(text: str, level: int = logging.INFO, *args: object) -> logging.LogRecord:
    return logging.LogRecord("kafka.server.KafkaServer", level, "", 1, text, args, None)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("[%d] %p %m (%c)%n", r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] WARN x 1 \(kafka.server.KafkaServer\)"),
        ("%-6p|%7p|%c{1}|%%", r"WARN  \|   WARN\|KafkaServer\|%"),
    ],
)
def test_line_is_formatted_by_the_pattern(pattern: str, line: str) -> None:
    assert re.fullmatch(line, Layout(pattern).format(record("x %d", logging.WARNING, 1)))


def test_warnings_and_errors_are_coloured_only_if_asked() -> None:
    assert Layout("%m", is_coloured=True).format(record("x", logging.ERROR)) == "\x1b[31mx\x1b[0m"
    assert Layout("%m", is_coloured=True).format(record("x")) == "x"
    assert Layout("%m").format(record("x", logging.ERROR)) == "x"


def test_name_from_a_client_cannot_forge_a_log_line() -> None:
    forged = "group\r\n[2026-01-01] INFO Principal = User:admin is Allowed\x1b[2J\ttab"
    line = Layout("%m%n").format(record("Denied %s", logging.INFO, forged))
    assert line == "Denied group\\r\\n[2026-01-01] INFO Principal = User:admin is Allowed\\x1b[2J\ttab"


def test_a_message_of_several_lines_keeps_them() -> None:
    settings = record("values:\n%s", logging.INFO, "a\nb")
    setattr(settings, HAS_LINES, True)
    assert Layout("%m").format(settings) == "values:\na\nb"


def test_a_file_is_renamed_when_its_hour_ends_and_old_ones_are_removed(tmp_path: Path) -> None:
    now_s = float(10 * HOUR_S)
    appender = Appender("A", str(tmp_path / "server.log"), date_suffix=".%Y-%m-%d-%H")
    file = RollingFile(appender, 2, lambda: now_s)
    for _ in range(4):
        file.write(f"{now_s}\n")
        now_s += HOUR_S
    file.write("last\n")
    file.close()
    names = [time.strftime("server.log.%Y-%m-%d-%H", time.localtime(hour * HOUR_S)) for hour in (12, 13)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server.log", *names]
    assert (tmp_path / names[0]).read_text() == f"{12.0 * HOUR_S}\n"
    assert (tmp_path / "server.log").read_text() == "last\n"


def test_a_file_of_an_earlier_hour_is_renamed_at_the_first_line_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("old\n")
    os.utime(path, (7 * HOUR_S, 7 * HOUR_S))
    file = RollingFile(Appender("A", str(path), date_suffix=".%H"), 5, lambda: 8.0 * HOUR_S)
    file.write("new\n")
    file.close()
    assert path.read_text() == "new\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_is_renamed_at_its_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    file = RollingFile(Appender("A", str(path), size_max=4, backup_count=2), 168)
    for number in range(4):
        file.write(f"{number}234\n")
    file.close()
    texts = [(tmp_path / name).read_text() for name in ("a.log", "a.log.1", "a.log.2")]
    assert texts == ["3234\n", "2234\n", "1234\n"]
    assert len(list(tmp_path.iterdir())) == 3


class SlowSink(io.StringIO):
    """A sink whose first write waits until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_writing, self.is_released = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.is_writing.set()
        assert self.is_released.wait(10)
        return super().write(text)


def test_a_slow_disk_delays_nobody_and_dropped_lines_are_counted() -> None:
    sink = SlowSink()
    writer = LogWriter(lines_max=3)
    appender = QueuedAppender(writer, sink, Layout("%m"))
    appender.handle(record("first"))
    assert sink.is_writing.wait(10)
    for number in range(10):
        appender.handle(record("line %d", logging.INFO, number))  # returns although nothing can be written
    sink.is_released.set()
    writer.close()
    lines = sink.getvalue().splitlines()
    assert lines[:4] == ["first", "line 0", "line 1", "line 2"]
    assert lines[4].startswith("7 lines of the log were dropped")


def test_arguments_are_read_when_the_line_is_logged() -> None:
    sink, values = io.StringIO(), [1]
    writer = LogWriter()
    QueuedAppender(writer, sink, Layout("%m")).handle(record("%s", logging.INFO, values))
    values.append(2)
    writer.close()
    assert sink.getvalue() == "[1]\n"


def test_a_full_disk_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    writer = LogWriter()
    appender = QueuedAppender(writer, Full(), Layout("%m"))
    for _ in range(3):
        appender.handle(record("x"))
    writer.close()
    assert capsys.readouterr().err.count("No space left") == 1


def test_a_server_writes_the_files_of_its_configuration(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/data\n")
    mine = tmp_path / "mine.properties"
    mine.write_text(
        "log4j.rootLogger=WARN, F\nlog4j.logger.kafka.server=INFO\nlog4j.appender.F=org.apache.log4j.FileAppender\n"
        "log4j.appender.F.File=${kafka.logs.dir}/all.log\nlog4j.appender.F.layout.ConversionPattern=%p %c{1} %m%n\n"
        "log4j.appender.F.odd=1\n"
    )
    environment = {
        **os.environ,
        "LOG_DIR": str(tmp_path / "logs"),
        "KAFKA_LOG4J_OPTS": f"-Dlog4j.configuration=file:{mine}",
    }
    command = [str(ROOT / "bin" / "kafka-server-start"), str(settings)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as broker:
        path = tmp_path / "logs" / "all.log"
        deadline_s = time.monotonic() + 30
        while time.monotonic() < deadline_s and not (path.exists() and " started\n" in path.read_text()):
            time.sleep(0.05)
        broker.terminate()
        _, errors = broker.communicate(timeout=30)
    lines = path.read_text().splitlines()
    assert any("log4j.appender.F.odd is not understood" in line for line in lines)
    assert errors == ""
    assert lines[-1].endswith("shut down completed")


@pytest.fixture
def unknown_topic(broker: BrokerProcess) -> list[str]:
    """The command line of a tool that logs a warning and ends."""
    return [
        str(ROOT / "bin" / "kafka-console-consumer"),
        *("--bootstrap-server", broker.bootstrap, "--topic", "logged", "--timeout-ms", "1"),
        *("--consumer-property", "allow.auto.create.topics=false"),
    ]


def run_with(command: list[str], options: str | None) -> str:
    """Run a tool with KAFKA_LOG4J_OPTS; return its stderr."""
    environment = {name: value for name, value in os.environ.items() if name not in ("KAFKA_LOG4J_OPTS", "LOG_DIR")}
    if options is not None:
        environment["KAFKA_LOG4J_OPTS"] = options
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False).stderr


def test_a_tool_logs_warnings_to_stderr_as_its_shipped_file_says(unknown_topic: list[str]) -> None:
    warning = re.escape("WARN Topic logged does not exist yet (org.apache.kafka.tools.consumer.ConsoleConsumer)")
    assert re.fullmatch(rf"\[[-\d]+ [\d:,]+\] {warning}", run_with(unknown_topic, None).splitlines()[0])


def test_a_tool_writes_where_its_configuration_says(unknown_topic: list[str], tmp_path: Path) -> None:
    mine, log = tmp_path / "mine.properties", tmp_path / "tool.log"
    mine.write_text(
        "log4j.rootLogger=ERROR, F\nlog4j.logger.org.apache.kafka.tools=WARN\n"
        "log4j.appender.F=org.apache.log4j.FileAppender\n"
        f"log4j.appender.F.File={log}\nlog4j.appender.F.layout.ConversionPattern=%p %c{{1}} %m%n\n"
    )
    assert "does not exist yet" not in run_with(unknown_topic, f"-Dlog4j.configuration=file:{mine}")
    assert log.read_text().splitlines()[0] == "WARN ConsoleConsumer Topic logged does not exist yet"


def test_a_tool_whose_configuration_cannot_be_read_says_so_and_logs_to_stderr(unknown_topic: list[str]) -> None:
    first, second, *_ = run_with(unknown_topic, "-Dlog4j.configuration=file:/nowhere").splitlines()
    assert "WARN cannot read /nowhere (KAFKA_LOG4J_OPTS): No such file or directory; logging to the console" in first
    assert "WARN Topic logged does not exist yet" in second
