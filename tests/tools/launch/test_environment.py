"""The messages during the creation of `.venv`. The tests of the launchers create one."""

import io
import re
import shutil
from pathlib import Path

import pytest

from tools.launch import environment
from tools.launch.environment import _PIP_SETTLED, Progress, is_ready

ROOT = Path(__file__).resolve().parents[3]


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_messages_replace_each_other_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    progress = Progress(terminal)
    progress.show("one")
    progress.show("a message that is longer than the line")
    progress.end()
    progress.end()
    assert terminal.getvalue() == "\r\x1b[Kone\r\x1b[Ka message that is l\n"


def test_messages_are_lines_in_a_pipe() -> None:
    pipe = io.StringIO()
    progress = Progress(pipe)
    progress.show("one")
    progress.show("two")
    progress.end()
    assert pipe.getvalue() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Collecting aiohttp==3.14.5 (from -r requirements.lock (line 9))", "aiohttp"),
        ("Collecting python-snappy==0.7.3", "python-snappy"),
        ("Processing /wheels/python_snappy-0.7.3-py3-none-any.whl", "python_snappy"),
        ("Processing ./tiny-1.0-py3-none-any.whl (from -r x)", "tiny"),
        ("Requirement already satisfied: yarl==1.2 in /x", "yarl"),
        ("Ignoring colorama: markers 'sys_platform == \"win32\"' don't match your environment", "colorama"),
        ("  Downloading aiohttp-3.14.5.whl (1.7 MB)", None),
        ("Installing collected packages: a, b", None),
    ],
)
def test_lines_of_pip_name_packages(line: str, name: str | None) -> None:
    match = _PIP_SETTLED.match(line)
    assert (match["name"] if match else None) == name


def test_environment_is_ready_once_it_contains_its_lock_file(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("tiny==1.0\n")
    assert not is_ready(tmp_path, lock.name)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert not is_ready(tmp_path, lock.name)
    shutil.copy(lock, tmp_path / ".venv")
    assert is_ready(tmp_path, lock.name)
    lock.write_text("tiny==2.0\n")
    assert not is_ready(tmp_path, lock.name)
    python.unlink()
    assert not is_ready(tmp_path, lock.name)


@pytest.mark.parametrize(
    "name",
    [
        "requirements.lock",
        "requirements-spark.lock",
        "requirements-dev.lock",
        "requirements-kerberos.lock",
        "requirements-build.lock",
        "requirements-release.lock",
    ],
)
def test_lock_files_pin_every_package_with_hashes_and_name_no_registry(name: str) -> None:
    text = (ROOT / name).read_text()
    requirements = re.findall(r"^[A-Za-z0-9].*$", text, re.MULTILINE)
    assert requirements
    assert all(re.match(r"[A-Za-z0-9._-]+==\S+ .*\\$", line) for line in requirements)
    assert text.count("--hash=sha256:") >= len(requirements)
    assert "://" not in text


def test_larger_lock_files_contain_the_smaller_ones() -> None:
    pins = {
        name: set(re.findall(r"^[A-Za-z0-9._-]+==\S+", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-spark.lock", "requirements-dev.lock")
    }
    assert pins["requirements.lock"] <= pins["requirements-spark.lock"] <= pins["requirements-dev.lock"]


def test_clone_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(root: Path, lock_name: str, progress: Progress) -> None:
        raise PermissionError(13, "Permission denied", str(root / ".venv"))

    (tmp_path / "requirements.lock").touch()
    monkeypatch.setattr(environment, "make", refuse)
    assert environment.main([str(tmp_path), "requirements.lock"]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"Could not prepare {tmp_path / '.venv'}: [Errno 13] Permission denied")
    assert said.endswith("once as the owner of the folder, for example kafka-topics --version")
