"""zookeeper-server-start and zookeeper-server-stop: a real server, and what is reported where none can run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from base import properties
from tests.support.java import SHORT_LIVED
from tests.support.parts import skip_when_unavailable
from tests.support.zookeeper import ZooKeeperProcess
from tests.tools.conftest import ROOT, Outcome, RunTool
from tools.launch.running_servers import running_zookeepers
from tools.launch.zookeeper_jars import MAIN_CLASS, NoZooKeeperError, server_command
from tools.zookeeper import zookeeper_server_start, zookeeper_server_stop

HOLDER = """
import os, sys
from pathlib import Path
from tools.launch.running_servers import register_zookeeper
register_zookeeper(Path(sys.argv[1]))
os.execv("/bin/cat", ["cat"])
"""


def test_server_serves_and_is_registered_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_HEAP_OPTS", f"-Xmx128m {' '.join(SHORT_LIVED)}")
    start = [sys.executable, "-P", "-m", "tools.zookeeper.zookeeper_server_start"]
    with skip_when_unavailable(), ZooKeeperProcess(tmp_path, command=lambda file: [*start, str(file)]) as server:
        assert server.pid in running_zookeepers()
        server.stop()
        assert server.pid not in running_zookeepers()


def test_settings_of_the_repository_are_valid() -> None:
    settings = properties.load(str(ROOT / "config" / "zookeeper.properties"))
    assert settings["clientPort"] == "2181"
    assert settings["admin.enableServer"] == "false"


def test_registration_survives_the_exchange_of_the_program(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"cat runs\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"cat runs\n"
        assert running_zookeepers(tmp_path) == [process.pid]
        process.kill()
        process.wait()
        assert running_zookeepers(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_running_servers_get_sigterm(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(zookeeper_server_stop, "running_zookeepers", lambda: [101, 102])
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    assert run(zookeeper_server_stop.main) == Outcome(0, "", "")
    assert sent == [(101, signal.SIGTERM), (102, signal.SIGTERM)]


def test_no_running_server_is_reported(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_server_stop, "running_zookeepers", list)
    assert run(zookeeper_server_stop.main) == Outcome(1, "No zookeeper server to stop\n", "")


@pytest.mark.parametrize("arguments", [(), ("a", "b")])
def test_start_needs_one_file(run: RunTool, arguments: tuple[str, ...]) -> None:
    outcome = run(zookeeper_server_start.main, *arguments)
    assert outcome == Outcome(1, "", "USAGE: zookeeper-server-start [-daemon] zookeeper.properties\n")


def test_missing_file_is_named(run: RunTool, tmp_path: Path) -> None:
    outcome = run(zookeeper_server_start.main, str(tmp_path / "none"))
    assert outcome == Outcome(1, "", f"Cannot read {tmp_path / 'none'}: No such file or directory\n")


def test_without_java_the_start_says_what_to_install(
    run: RunTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "zoo.cfg").touch()
    outcome = run(zookeeper_server_start.main, str(tmp_path / "zoo.cfg"))
    assert outcome.status == 1
    assert f"JAVA_HOME={tmp_path} has none: install openjdk-17-jre-headless" in outcome.stderr
    assert "A single broker needs no ZooKeeper" in outcome.stderr


def test_without_jars_the_start_says_where_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoZooKeeperError, match="set ZOOKEEPER_HOME to an unpacked apache-zookeeper"):
        server_command(tmp_path, {"PATH": os.environ["PATH"]})


def test_zookeeper_home_is_preferred(tmp_path: Path) -> None:
    variables = {"PATH": os.environ["PATH"], "ZOOKEEPER_HOME": str(tmp_path), "KAFKA_HEAP_OPTS": "-Xmx1g -Xms1g"}
    with pytest.raises(NoZooKeeperError, match="has no lib/zookeeper-"):
        server_command(tmp_path / "zoo.cfg", variables)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "zookeeper-3.9.3.jar").touch()
    with skip_when_unavailable():
        _, *options, main, settings = server_command(tmp_path / "zoo.cfg", variables)
    assert options[:2] == ["-Xmx1g", "-Xms1g"]
    assert options[-2:] == ["-cp", f"{tmp_path}/conf:{tmp_path}/lib/*"]
    assert (main, settings) == (MAIN_CLASS, f"{tmp_path}/zoo.cfg")
