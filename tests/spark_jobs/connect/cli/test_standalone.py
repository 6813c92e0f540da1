"""connect-standalone: its files, and what it does with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spark_jobs.connect.cli import distributed, standalone
from tests.support.broker import ROOT, BrokerProcess
from tests.support.connect_workers import Client
from tests.support.ports import free_port
from tests.support.waiting import wait_until

WORKER = """bootstrap.servers={bootstrap}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=100
listeners=http://127.0.0.1:{port}
"""
SOURCE = "name=source\nconnector.class=FileStreamSource\nfile={folder}/in.txt\ntopic=lines\n"
SINK = """{{"name": "sink", "config": {{
    "connector.class": "FileStreamSink", "file": "{folder}/out.txt", "topics": "lines", "tasks.max": 1
}}}}"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("standalone"), {"offsets.topic.num.partitions": "1"}) as process:
        yield process


def files(bootstrap: str, folder: Path, port: int) -> list[str]:
    """Write the files of a worker, a source and a sink."""
    found = {"worker.properties": WORKER, "source.properties": SOURCE, "sink.json": SINK}
    for name, text in found.items():
        (folder / name).write_text(text.format(bootstrap=bootstrap, folder=folder, port=port))
    return [str(folder / name) for name in found]


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "spark_jobs.connect.cli.standalone", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


def _has_text(file: Path, text: str) -> bool:
    return file.exists() and file.read_text() == text


def test_lines_are_copied_from_file_to_file_and_each_once_after_a_restart(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    port = free_port()
    arguments = files(broker.bootstrap, tmp_path, port)
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("foo\nbar\n")
    for expected in ("foo\nbar\n", "foo\nbar\nlater\n"):
        process = start(arguments)
        try:
            wait_until(partial(_has_text, sink, expected), timeout_s=30)
            client = Client(f"http://127.0.0.1:{port}/")
            assert client.get("/connectors") == ["sink", "source"]
            assert client.get("/connectors/sink")["config"]["tasks.max"] == "1"
        finally:
            process.send_signal(signal.SIGTERM)
            output = process.communicate(timeout=30)[0].decode()
        assert process.returncode == 0, output
        assert "Traceback" not in output
        with source.open("a") as file:
            file.write("later\n")


def test_a_connector_that_is_invalid_ends_the_worker_with_its_file(
    broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = files(broker.bootstrap, tmp_path, free_port())
    Path(arguments[1]).write_text("name=source\nconnector.class=NoSuch\n")
    process = start(arguments)
    output = process.communicate(timeout=30)[0].decode()
    assert process.returncode == 1
    assert f"Failed to create the connector of {arguments[1]}: Failed to find any class" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Cannot read"),
        ("[" * 100_000, "Cannot read"),
        ("[]", "expected a JSON object of texts"),
        ('{"name": "n", "config": {"a": ["b"]}}', "expected a JSON object of texts"),
        ('{"a": null}', "expected a JSON object of texts"),
    ],
)
def test_a_file_of_a_connector_that_makes_no_sense_is_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "connector.json"
    file.write_text(text)
    assert standalone.main([str(tmp_path / "worker.properties"), str(file)]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert str(file) in error


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert standalone.main([str(tmp_path / "missing.properties")]) == 1
    assert f"Cannot read {tmp_path / 'missing.properties'}: No such file" in capsys.readouterr().err


def test_a_distributed_worker_takes_no_files_of_connectors(capsys: pytest.CaptureFixture[str]) -> None:
    assert distributed.main(["worker.properties", "connector.properties"]) == 1
    assert "connector.properties is one file too many" in capsys.readouterr().err


def test_a_command_without_files_shows_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert distributed.main([]) == 1
    assert "connect-distributed.properties" in capsys.readouterr().err
