"""Creates the folder `.venv`, in which the launchers run everything, from a lock file with hashes.

It runs as a script before any dependency exists, so it imports only the standard library. It may be started twice,
interrupted, and started again after an update:

- a lock on the project's folder allows one process at a time to change the environment;
- the copy of the lock file inside `.venv` is written last, and shows that the environment is complete;
- a marker shows unfinished work. A process that finds it starts over, because a half-unpacked package looks installed.
"""

import fcntl
import filecmp
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

_BROKER_LOCK = "requirements.lock"
_SPARK_LOCK = "requirements-spark.lock"
_DEVELOPMENT_LOCK = "requirements-dev.lock"
# An environment made from the first lock file has all packages of the others, so it is ready for them too.
_CONTAINED = {
    _DEVELOPMENT_LOCK: (_SPARK_LOCK, _BROKER_LOCK),
    _SPARK_LOCK: (_BROKER_LOCK,),
    _BROKER_LOCK: (),
}
BUILD_LOCK = "requirements-build.lock"
_ADDED_LOCKS = ("requirements-kerberos.lock", "requirements-release.lock", BUILD_LOCK)
"""Of optional packages: they are added to an environment that is complete without them."""
_MARKER = "incomplete"
_REQUIREMENT = re.compile(r"^(?=[A-Za-z0-9][A-Za-z0-9._-]*==)", re.MULTILINE)
_MANY_REQUIREMENTS = 30
_PIPS = 2
"""How many run at a time for many requirements."""
# Lines of pip about a package: from an index, from a folder, already installed, or not needed on this machine.
_PIP_SETTLED = re.compile(
    r"(?:Collecting |Processing (?:\S*/)?|Requirement already satisfied: |Ignoring )"
    r"(?P<name>[A-Za-z0-9._]+(?:-(?!\d)[A-Za-z0-9._]+)*)"
)


class PreparationError(Exception):
    """The environment could not be created; the text is for the user."""


def main(arguments: list[str]) -> int:
    """`environment.py PROJECT_FOLDER LOCK_FILE_NAME`."""
    root, lock_name = Path(arguments[0]), arguments[1]
    progress = Progress(sys.stderr)
    try:
        with _only_one(root, progress):
            if not is_ready(root, lock_name):
                make(root, lock_name, progress)
    except PreparationError as error:
        progress.end()
        print(f"Could not prepare {root / '.venv'}: {error}", file=sys.stderr)
        return 1
    except PermissionError as error:
        progress.end()
        print(
            f"Could not prepare {root / '.venv'}: {error}. Run any tool of {root / 'bin'} once as the owner of the "
            "folder, for example kafka-topics --version",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        progress.end()
        return 130
    return 0


def is_ready(root: Path, lock_name: str) -> bool:
    """Return whether `.venv` is complete for this lock file."""
    venv = root / ".venv"
    copy = venv / lock_name
    has_copy = copy.is_file() and filecmp.cmp(root / lock_name, copy, shallow=False)
    return has_copy and (venv / "bin" / "python").exists()


def make(root: Path, lock_name: str, progress: "Progress") -> None:
    """Create or update `.venv`. Raises PreparationError."""
    venv = root / ".venv"
    marker = venv / _MARKER
    started_s = time.monotonic()
    if not _is_usable(venv):
        progress.show(f"Preparing {venv} (once)")
        if venv.exists():
            shutil.rmtree(venv)
        venv.mkdir()
        marker.touch()
        _run([sys.executable, "-m", "venv", str(venv)], "python -m venv")
    if lock_name in _ADDED_LOCKS:
        # No marker: without them the environment stays usable.
        _install(root, lock_name, progress)
    else:
        marker.touch()
        for copy in venv.glob("*.lock"):
            copy.unlink()
        _install(root, lock_name, progress)
        marker.unlink()
    for name in (lock_name, *_CONTAINED.get(lock_name, ())):
        shutil.copyfile(root / name, venv / name)
    progress.show(f"Prepared {venv} in {time.monotonic() - started_s:.0f} s")
    progress.end()


def _is_usable(venv: Path) -> bool:
    """Return whether the existing environment can be updated: it was complete once, and its Python works."""
    python = venv / "bin" / "python"
    if (venv / _MARKER).exists() or not python.exists():
        return False
    probe = [str(python), "-c", "import sys, pip; raise SystemExit(sys.version_info < (3, 11))"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def _install(root: Path, lock_name: str, progress: "Progress") -> None:
    lock = root / lock_name
    python = root / ".venv" / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--require-hashes"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    if lock_name in (_BROKER_LOCK, BUILD_LOCK):
        command += ["--only-binary", ":all:"]  # a broker's machine needs no compiler
    if lock_name == _DEVELOPMENT_LOCK:
        command += ["--no-compile"]  # most modules of its packages are never imported
    requirements = _REQUIREMENT.split(lock.read_text(encoding="utf-8"))[1:]
    settled: set[str] = set()

    def install(file: Path, *options: str) -> None:
        output: list[str] = []
        arguments = [*command, *options, "--requirement", str(file)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
            assert pip.stdout is not None
            for line in pip.stdout:
                output.append(line)
                if (match := _PIP_SETTLED.match(line)) and match["name"] not in settled:
                    settled.add(match["name"])
                    progress.show(f"Preparing .venv: package {len(settled)} of {len(requirements)}, {match['name']}")
                elif line.startswith("Installing collected packages"):
                    progress.show("Preparing .venv: installing the packages")
        if pip.returncode != 0:
            raise PreparationError(f"pip ended with status {pip.returncode}\n{''.join(output[-15:])}")

    if len(requirements) < _MANY_REQUIREMENTS:
        install(lock)
        return
    # pip takes as long to choose packages as to install them, on one core.
    with TemporaryDirectory() as folder, ThreadPoolExecutor(_PIPS) as pool:
        files = [Path(folder) / f"{number}-{lock_name}" for number in range(_PIPS)]
        for number, file in enumerate(files):
            file.write_text("".join(requirements[number::_PIPS]), encoding="utf-8")
        list(pool.map(install, files, ["--no-deps"] * _PIPS))
    _run([str(python), "-m", "pip", "check"], "pip check")


def _run(command: list[str], name: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise PreparationError(f"{name} ended with status {result.returncode}\n{result.stdout}{result.stderr}")


@contextmanager
def _only_one(root: Path, progress: "Progress") -> Iterator[None]:
    """Hold a lock on the project's folder; the kernel releases it when the process ends."""
    descriptor = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.show("Another start is preparing .venv; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class Progress:
    """Messages that replace each other on a terminal, and are separate lines elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._is_line_open = False

    def show(self, message: str) -> None:
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns
            self._stream.write(f"\r\x1b[K{message[: columns - 1]}")
            self._is_line_open = True
        else:
            self._stream.write(f"{message}\n")
        self._stream.flush()

    def end(self) -> None:
        """End the line of the last message."""
        if self._is_line_open:
            self._stream.write("\n")
            self._is_line_open = False


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
