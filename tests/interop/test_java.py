"""The machine's Java is checked once; an error says what to install."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.java import UnavailableError, java_executable

JDK = 'openjdk version "17.0.1" 2021-10-19'


@pytest.fixture(autouse=True)
def not_remembered() -> Iterator[None]:
    java_executable.cache_clear()
    yield
    java_executable.cache_clear()


def a_java(home: Path, version: str, *, has_compiler: bool) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        "#!/bin/sh\n"
        f"if [ $1 = -version ]; then echo '{version}' >&2; exit 0; fi\n"
        f"[ \"$*\" = '--describe-module jdk.compiler' ] && exit {0 if has_compiler else 1}\n"
        "exit 99\n"
    )
    java.chmod(0o755)
    return java


def test_java_of_java_home_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = a_java(tmp_path, JDK, has_compiler=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_executable() == java


def test_java_of_the_path_is_used_without_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = a_java(tmp_path, JDK, has_compiler=True)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java.parent}:{os.environ['PATH']}")
    assert java_executable() == java


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        (JDK, "is a JRE"),
        ('java version "1.8.0_412"', 'is java version "1.8.0_412"'),
        ("something else", "is something else"),
    ],
)
def test_unsuitable_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, problem: str) -> None:
    a_java(tmp_path, version, has_compiler=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnavailableError, match=f"needs a JDK 17, and .*{problem}: install openjdk-17-jdk-headless"):
        java_executable()


def test_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("java") is None
    with pytest.raises(UnavailableError, match="there is no java: install openjdk-17-jdk-headless"):
        java_executable()
