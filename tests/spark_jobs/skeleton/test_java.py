"""Without Java, or without the jars of the connectors, a program ends with one line and exit code 2."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from spark_jobs import compare, flights_chart, wordcount
from spark_jobs.skeleton import runner, session
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.java_runtime.java_command import java_command

BROKERS = ["--bootstrap-servers", "127.0.0.1:9"]
PROGRAMS: dict[str, tuple[Callable[[Sequence[str]], int], list[str]]] = {
    "compare": (compare.main, [*BROKERS, "--left", "a", "--right", "b"]),
    "flights_chart": (flights_chart.main, ["--parquet", "{folder}", "--image", "{folder}/daily.png"]),
    "wordcount": (wordcount.JOB.main, [*BROKERS, "--checkpoint", "{folder}"]),
}


def run(name: str, folder: Path) -> int:
    (folder / "batch=0").mkdir()
    main, flags = PROGRAMS[name]
    return main([flag.format(folder=folder) for flag in flags])


@pytest.fixture(autouse=True)
def _ignore_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "topic_preparation", lambda *_: lambda *_: None)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_without_java_ends_with_one_line(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert run(name, tmp_path) == 2
    lines = [*capfd.readouterr().err.splitlines(), *caplog.messages]
    assert [line for line in lines if "java is missing: install a JDK 17 or newer, or set JAVA_HOME" in line]
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_without_the_jar_of_a_connector_ends_with_one_line(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    failed = subprocess.CompletedProcess([], 1, "", "no network\n")
    monkeypatch.setattr(session, "java_command", lambda: "java")
    monkeypatch.setattr("spark_jobs.skeleton.java_runtime.pinned_jars.java_command", lambda: "java")
    monkeypatch.setattr("spark_jobs.skeleton.java_runtime.pinned_jars.subprocess.run", lambda *_, **__: failed)
    monkeypatch.setattr(session, "_JARS", tmp_path / "jars")
    assert run(name, tmp_path) == 2
    lines = [*capfd.readouterr().err.splitlines(), *caplog.messages]
    assert [line for line in lines if "cannot be fetched from Maven Central: no network" in line]
    assert not any("Traceback" in line for line in lines)


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JobError, match=f"JAVA_HOME: {tmp_path}/bin/java is not a program: install a JDK 17"):
        java_command()
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o700)
    assert java_command() == str(program)


def test_java_is_the_first_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "java").touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java_command() == str(tmp_path / "java")
