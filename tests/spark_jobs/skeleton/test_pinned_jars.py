"""Fetched jars are compared with the hashes that this project was tested with; missing ones are named in one line."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from spark_jobs.skeleton.java_runtime import pinned_jars as module
from spark_jobs.skeleton.java_runtime.pinned_jars import TABLE, PinnedJarError, pinned_jars
from spark_jobs.skeleton.session import CONNECTORS

CONTENT = b"a jar"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NAME = "org.some_part-of_2.13-1.0.jar"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "connector.sha256"
    path.write_text(f"{SHA256}  {NAME}\n")
    return path


def test_present_jars_are_used_without_a_fetch(tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / NAME).write_bytes(CONTENT)
    monkeypatch.setattr(module, "_fetch", None)
    assert pinned_jars(tmp_path, table) == [tmp_path / NAME]


def test_a_jar_with_another_hash_is_rejected(tmp_path: Path, table: Path) -> None:
    (tmp_path / NAME).write_bytes(b"another")
    other = hashlib.sha256(b"another").hexdigest()
    with pytest.raises(PinnedJarError, match=rf"{NAME} has SHA-256 {other}, .* expects {SHA256}"):
        pinned_jars(tmp_path, table)


def test_a_missing_jar_is_fetched_by_its_coordinates(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def ivy(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        module_file = Path(command[command.index("-ivy") + 1])
        asked.append(module_file.read_text())
        (module_file.parent / NAME).write_bytes(CONTENT)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("spark_jobs.skeleton.java_runtime.pinned_jars.subprocess.run", ivy)
    assert pinned_jars(tmp_path / "jars", table) == [tmp_path / "jars" / NAME]
    assert 'org="org.some" name="part-of_2.13" rev="1.0"' in asked[0]
    assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in (tmp_path / "jars").iterdir()] == [NAME]


def test_a_fetch_that_fails_states_the_jar_and_the_reason(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CompletedProcess([], 1, "first\n", "unresolved dependency\n")
    monkeypatch.setattr("spark_jobs.skeleton.java_runtime.pinned_jars.subprocess.run", lambda *_, **__: failed)
    with pytest.raises(PinnedJarError, match=f"{NAME} cannot be fetched from Maven Central: unresolved dependency"):
        pinned_jars(tmp_path / "jars", table)


def test_the_table_lists_the_connectors() -> None:
    for connector in CONNECTORS:
        organisation, name, version = connector.split(":")
        listed = f"  {organisation}_{name}-{version}.jar\n"
        assert listed in TABLE.read_text(), "python -m tests.support.lock_libraries"
