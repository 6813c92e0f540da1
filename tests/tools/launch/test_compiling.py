"""Compiling in a clone: what cannot be compiled is reported with its reason, and is not tried at each start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from base import compiled
from tools.launch import compiling


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for compiled modules."""
    folder = tmp_path / "compiled"
    monkeypatch.setattr(compiled, "FOLDER", folder)
    monkeypatch.delenv(compiled.VARIABLE, raising=False)
    return folder


def test_without_a_compiler_the_reason_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert compiling.prepare() == "no C compiler was found (no-such-compiler)"


def test_without_the_headers_of_python_the_reason_says_what_to_install(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling.sysconfig, "get_path", lambda _: str(tmp_path))
    reason = compiling.prepare()
    assert reason is not None
    assert "python3-dev" in reason


def test_broken_compiler_is_tried_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "cc"
    tool.write_bytes(b"#!/bin/sh\necho cannot find crt1.o \xff >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("CC", str(tool))
    monkeypatch.setattr(compiling, "MODULES", compiled.MODULES[:1])  # each takes Cython more than a second
    reason = compiling.prepare()
    assert reason is not None
    assert reason.startswith("the compiler failed: ")
    assert "cannot find crt1.o" in reason
    assert [path.name for path in folder.iterdir()] == ["failure"]

    tries: list[list[str]] = []

    def fail(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        tries.append(command)
        return subprocess.CompletedProcess(command, 1, "", "another version")

    monkeypatch.setattr(compiling.subprocess, "run", fail)
    assert compiling.prepare() == reason
    assert not tries
    failure = folder / "failure"
    failure.write_bytes(failure.read_bytes() + b"\xe2\x80")  # cut off within a character
    assert compiling.prepare() == f"{reason}\ufffd"
    tool.write_text("#!/bin/sh\necho another version >&2\nexit 1\n")
    assert compiling.prepare() == "the compiler failed: another version"
    assert compiling.main() == 0
    assert "another version" in capsys.readouterr().err
    assert len(tries) == 1


def test_compiler_that_hangs_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(compiling.subprocess, "run", hang)
    assert "took more than" in (compiling.prepare() or "")


def test_environment_that_cannot_be_written_is_a_reason(folder: Path) -> None:
    folder.write_text("a file where the folder would be")
    assert str(folder) in (compiling.prepare() or "")


def test_variable_that_turns_it_off_is_a_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.VARIABLE, "no")
    assert compiling.prepare() == "MILENA_COMPILED is no"


def test_compiled_modules_are_not_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_missing", list)
    monkeypatch.setattr(compiling, "_compile_once", lambda *_: pytest.fail("nothing was missing"))
    assert compiling.prepare() is None


def test_only_the_newest_forms_of_a_module_are_kept(folder: Path) -> None:
    folder.mkdir()
    for number in range(7):
        path = folder / f"protocol.frame-{number}-0.so"
        path.touch()
        os.utime(path, ns=(number, number))
    (folder / "protocol.frames-1-0.so").touch()
    compiling._remove_old_forms("protocol.frame")
    assert sorted(path.name for path in folder.iterdir()) == [
        *(f"protocol.frame-{number}-0.so" for number in (3, 4, 5, 6)),
        "protocol.frames-1-0.so",
    ]
