"""A job's process ends with its task and with its worker, keeps its secrets, and says why it has ended."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.connectors.spark_process import LINES_KEPT, JobProcess
from tests.support.processes import is_running
from tests.support.waiting import wait_until

JOB = r'''
"""Does what its arguments say, one after the other."""
import os, signal, subprocess, sys, tempfile, time

def ignore(path):
    """Ignore SIGTERM, and have a child that does so too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "600"])
    open(path, "w").write(f"{os.getpid()} {child.pid}\n")

def note(path):
    """Write the number of the process, and later that it was asked to end."""
    def end(*_):
        open(path + ".ended", "w").close()
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    open(path, "w").write(f"{os.getpid()} {os.getpid()}\n")

def copy(secret, path):
    content = open(secret).read()
    open(path + ".new", "w").write(content + tempfile.gettempdir())
    os.rename(path + ".new", path)

def fail(lines):
    for number in range(int(lines)):
        print(f"line {number}", file=sys.stderr)
    sys.exit(3)

what, *arguments = sys.argv[1:]
{"ignore": ignore, "note": note, "fail": fail, "copy": lambda path, _flag, secret: copy(secret, path)}[what](*arguments)
time.sleep(600)
'''


@pytest.fixture(autouse=True)
def _job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fake_job.py").write_text(JOB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
def started() -> Iterator[list[JobProcess]]:
    """Processes that are stopped at the end, whatever happens."""
    found: list[JobProcess] = []
    yield found
    for each in found:
        each.stop(0)


def start(started: list[JobProcess], *arguments: object, secrets: dict[str, str] | None = None) -> JobProcess:
    process = JobProcess("the job fake", "fake_job", [str(each) for each in arguments], secrets or {})
    started.append(process)
    process.start()
    return process


def numbers_in(path: Path) -> list[int]:
    """Return the numbers of the processes that a job has written."""
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), f"a job that writes {path.name}")
    return [int(each) for each in path.read_text().split()]


def end_of(process: JobProcess) -> str:
    """Return why a process has ended."""
    errors: list[str] = []

    def has_ended() -> bool:
        try:
            process.check()
        except ConnectError as error:
            errors.append(str(error))
        return bool(errors)

    wait_until(has_ended, "the end of the process")
    return errors[0]


def test_a_process_that_ends_with_an_error_names_its_code_and_its_last_lines(started: list[JobProcess]) -> None:
    first, *lines = end_of(start(started, "fail", 1000)).splitlines()
    assert first == "the job fake has ended with exit code 3. Its last lines:"
    assert lines == [f"line {number}" for number in range(1000 - LINES_KEPT, 1000)]


def test_a_process_that_is_killed_names_the_signal(started: list[JobProcess], tmp_path: Path) -> None:
    process = start(started, "note", tmp_path / "pid")
    pid, _ = numbers_in(tmp_path / "pid")
    process.check()
    os.kill(pid, signal.SIGKILL)
    assert "has ended by signal 9" in end_of(process)


def test_a_process_may_end_by_itself_when_it_is_stopped(started: list[JobProcess], tmp_path: Path) -> None:
    process = start(started, "note", tmp_path / "pid")
    pid, _ = numbers_in(tmp_path / "pid")
    process.stop(60.0)
    assert (tmp_path / "pid.ended").exists()
    assert not is_running(pid)


def test_a_process_that_does_not_end_in_time_is_killed_with_its_children(
    started: list[JobProcess], tmp_path: Path
) -> None:
    process = start(started, "ignore", tmp_path / "pids")
    pids = numbers_in(tmp_path / "pids")
    assert all(map(is_running, pids))
    process.stop(0.05)
    wait_until(lambda: not any(map(is_running, pids)), "the end of the job and its child")
    process.stop(0.05)  # of a process that has ended


def test_secrets_are_on_no_command_line_and_temporary_files_are_deleted(
    started: list[JobProcess], tmp_path: Path
) -> None:
    process = start(started, "copy", tmp_path / "copied", secrets={"--jdbc-config": "password=hidden\n"})
    wait_until((tmp_path / "copied").exists)
    secret, temporary = (tmp_path / "copied").read_text().splitlines()
    assert secret == "password=hidden"
    assert b"hidden" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert Path(temporary).is_dir()
    process.stop(60.0)
    assert not Path(temporary).exists()


def test_the_process_ends_when_the_worker_is_killed(tmp_path: Path) -> None:
    worker = (
        "import sys, time; from spark_jobs.connect.connectors.spark_process import JobProcess; "
        f"JobProcess('fake', 'fake_job', ['note', {str(tmp_path / 'pid')!r}], {{}}).start(); time.sleep(600)"
    )
    path = os.pathsep.join([str(tmp_path), os.getcwd()])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-P", "-c", worker], env=environment) as process:
        try:
            pid, _ = numbers_in(tmp_path / "pid")
        finally:
            process.kill()
    wait_until(lambda: not is_running(pid), "the end of the job")
    assert (tmp_path / "pid.ended").exists()
