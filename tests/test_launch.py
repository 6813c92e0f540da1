"""The launchers in bin/: they create and repair their environment, find the project, and pass on all arguments.

The tests run a copy of the launchers in a separate project, whose lock file names one tiny wheel. So creating an
environment takes seconds and needs no network. Most of these seconds are those of `python -m venv`: it runs once, and
then a module of the tests in its place copies what it has made.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("requirements.lock", "requirements-spark.lock", "requirements-dev.lock")
LAUNCHERS = sorted(path.name for path in (ROOT / "bin").glob("kafka-*") if not path.name.endswith(".sh"))


def write_wheel(folder: Path, version: str, package: str = "tiny", requires: str = "") -> Path:
    """Write a wheel of a package, which requires another one."""
    path = folder / f"{package}-{version}-py3-none-any.whl"
    requirement = f"Requires-Dist: {requires}\n" if requires else ""
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n{requirement}"
    files = {
        f"{package}.py": f"VERSION = {version!r}\n",
        f"{package}-{version}.dist-info/METADATA": metadata,
        f"{package}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},{_digest(text)},{len(text)}\n" for name, text in files.items())
    files[f"{package}-{version}.dist-info/RECORD"] = record + f"{package}-{version}.dist-info/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return path


def _digest(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"


class Project:
    """A folder with the launchers, and one tool that prints how it was started."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        shutil.copytree(ROOT / "bin", self.root / "bin", symlinks=True)
        shutil.copytree(
            ROOT / "milena_broker", self.root / "milena_broker", ignore=shutil.ignore_patterns("__pycache__")
        )
        for room in ("admin", "launch"):
            (self.root / "tools" / room).mkdir(parents=True)
        shutil.copy(ROOT / "tools" / "launch" / "environment.py", self.root / "tools" / "launch")
        (self.root / "tools" / "admin" / "topics.py").write_text(
            "import os, sys, tiny\n"
            "def main():\n    print(tiny.VERSION, os.getcwd(), sys.argv[1:], sys.path[0], sep='|')\n    return 0\n"
        )
        self.lock("1.0")

    def lock(self, version: str, others: int = 0, requires: str = "") -> None:
        """Write lock files of a version of the package, and of others that require `requires`: by default the first."""
        wheels = {"tiny": write_wheel(self.wheels, version)}
        for number in range(others):
            name = f"other{number}"
            wheels[name] = write_wheel(self.wheels, version, name, requires or "tiny")
        digests = {name: hashlib.sha256(wheel.read_bytes()).hexdigest() for name, wheel in wheels.items()}
        text = "".join(
            f"{name}=={version} \\\n    --hash=sha256:{digest}\n    # via milena\n" for name, digest in digests.items()
        )
        for name in LOCKS:
            (self.root / name).write_text(text)

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    def spawn(
        self, *command: str, cwd: Path | None = None, path: str | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd or self.root,
            env={
                "PATH": path or f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.wheels),
                "HOME": str(self.wheels),
                **environment,
            },
        )

    def run(
        self, *command: str, cwd: Path | None = None, path: str | None = None, **environment: str
    ) -> tuple[int, str, str]:
        process = self.spawn(*command, cwd=cwd, path=path, **environment)
        stdout, stderr = process.communicate(timeout=120)
        return process.returncode, stdout, stderr


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH whose module `venv` copies an environment that `python -m venv FOLDER` has made."""
    made = tmp_path_factory.mktemp("environment") / "made"
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    folder = tmp_path_factory.mktemp("copying")
    (folder / "venv.py").write_text(
        "import shutil, sys\n"
        "(folder,) = sys.argv[1:]\n"
        f"shutil.copytree({str(made)!r}, folder, symlinks=True, dirs_exist_ok=True)\n"
    )
    return folder


@pytest.fixture(scope="module")
def prepared(copying: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose environment was created by two concurrent starts."""
    project = Project(tmp_path_factory.mktemp("prepared"))
    command = str(project.root / "bin" / "kafka-topics")
    starts = [project.spawn(command, str(number), PYTHONPATH=str(copying)) for number in range(2)]
    outcomes = [start.communicate(timeout=120) for start in starts]
    assert [start.returncode for start in starts] == [0, 0], outcomes
    for number, (stdout, _) in enumerate(outcomes):
        assert stdout.startswith("1.0|")
        assert f"['{number}']" in stdout
    errors = "".join(stderr for _, stderr in outcomes)
    assert errors.count("Preparing .venv: package 1 of 1, tiny\n") == 1
    assert "Another start is preparing .venv; waiting for it\n" in errors
    return project


@pytest.fixture
def project(prepared: Project) -> Iterator[Project]:
    """The prepared project; changes of a test to its environment are undone."""
    yield prepared
    prepared.lock("1.0")
    (prepared.venv / "incomplete").unlink(missing_ok=True)
    for name in LOCKS:
        (prepared.venv / name).unlink(missing_ok=True)
    shutil.copy(prepared.root / "requirements.lock", prepared.venv)


def test_ready_environment_is_used_without_output(project: Project) -> None:
    """The launcher does not even start the program that prepares an environment."""
    program = project.root / "tools" / "launch" / "environment.py"
    content = program.read_text()
    program.unlink()
    try:
        status, stdout, stderr = project.run("bin/kafka-topics", "--list", "a b", "")
    finally:
        program.write_text(content)
    assert (status, stderr) == (0, "")
    assert stdout == f"1.0|{project.root}|['--list', 'a b', '']|{project.root}\n"


def test_launcher_works_from_any_folder_and_keeps_it(project: Project, tmp_path: Path) -> None:
    link = tmp_path / "kafka-topics"
    link.symlink_to(project.root / "bin" / "kafka-topics.sh")
    for command in (str(link), str(project.root / "bin" / "kafka-topics.sh")):
        status, stdout, _ = project.run(command, cwd=tmp_path)
        assert status == 0
        assert stdout.split("|")[1] == str(tmp_path)


def test_plug_ins_are_found_through_classpath_and_nothing_through_the_folder(project: Project, tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text("VERSION = 'shadow'\n")
    launcher = str(project.root / "bin" / "kafka-topics")
    assert project.run(launcher, cwd=tmp_path)[1].startswith("1.0|")
    (project.root / "tools" / "admin" / "consumer_groups.py").write_text(
        "import sys\ndef main():\n    print(sys.path[:2])\n"
    )
    groups = str(project.root / "bin" / "kafka-consumer-groups")
    assert project.run(groups, CLASSPATH="/plug/ins")[1] == f"['{project.root}', '/plug/ins']\n"


def test_outdated_environment_is_updated(project: Project) -> None:
    project.lock("2.0")
    status, stdout, stderr = project.run("bin/kafka-topics")
    assert (status, stdout.split("|")[0]) == (0, "2.0")
    assert "package 1 of 1, tiny" in stderr


def test_incomplete_environment_is_recreated(project: Project, copying: Path) -> None:
    (project.venv / "requirements.lock").unlink()
    (project.venv / "incomplete").touch()
    (project.venv / "left-over").touch()
    status, stdout, stderr = project.run("bin/kafka-topics", PYTHONPATH=str(copying))
    assert (status, stdout.split("|")[0]) == (0, "1.0")
    assert f"Preparing {project.venv} (once)\n" in stderr
    assert not (project.venv / "left-over").exists()
    assert not (project.venv / "incomplete").exists()


def test_failed_preparation_reports_the_error_and_stays_unready(project: Project) -> None:
    project.lock("3.0")
    (project.wheels / "tiny-3.0-py3-none-any.whl").unlink()
    status, stdout, stderr = project.run("bin/kafka-topics")
    assert (status, stdout) == (1, "")
    assert f"Could not prepare {project.venv}: pip ended with status 1" in stderr
    assert "No matching distribution found for tiny==3.0" in stderr
    assert not (project.venv / "requirements.lock").exists()


def test_wheel_with_another_hash_is_rejected(project: Project) -> None:
    project.lock("4.0")
    with zipfile.ZipFile(project.wheels / "tiny-4.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("extra.py", "")
    status, _, stderr = project.run("bin/kafka-topics")
    assert status == 1
    assert "DO NOT MATCH THE HASHES" in stderr


def test_development_environment_serves_the_broker_as_well(project: Project) -> None:
    environment = str(project.root / "tools" / "launch" / "environment.py")
    status, _, stderr = project.run(sys.executable, "-I", environment, str(project.root), "requirements-dev.lock")
    assert status == 0, stderr
    assert {path.name for path in project.venv.glob("*.lock")} == set(LOCKS)


def test_many_packages_are_installed_by_two_processes_and_all_are_there(project: Project) -> None:
    project.lock("5.0", others=29)
    status, stdout, stderr = project.run("bin/kafka-topics")
    assert (status, stdout.split("|")[0]) == (0, "5.0"), stderr
    assert "package 30 of 30" in stderr
    assert len(list(project.venv.glob("lib/*/site-packages/other*.py"))) == 29


def test_a_lock_file_of_many_packages_that_lacks_one_is_reported(project: Project) -> None:
    project.lock("6.0", others=29, requires="missing")
    status, _, stderr = project.run("bin/kafka-topics")
    assert status == 1
    assert "requires missing, which is not installed" in stderr
    assert not (project.venv / "requirements.lock").exists()


def test_added_packages_leave_the_environment_complete(project: Project) -> None:
    added = "requirements-kerberos.lock"
    shutil.copy(project.root / "requirements.lock", project.root / added)
    environment = str(project.root / "tools" / "launch" / "environment.py")
    status, _, stderr = project.run(sys.executable, "-I", environment, str(project.root), added)
    assert status == 0, stderr
    assert {path.name for path in project.venv.glob("*.lock")} >= {added, "requirements.lock"}


def test_missing_python_is_reported(project: Project, tmp_path: Path) -> None:
    (project.venv / "requirements.lock").unlink()
    for name in ("sh", "readlink", "cmp"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" || exit 1\n')
    old.chmod(0o755)
    status, stdout, stderr = project.run(str(project.root / "bin" / "kafka-topics"), path=str(tmp_path))
    assert (status, stdout) == (1, "")
    assert stderr == "Python 3.11 or newer is needed, and none was found in PATH (Python 3.9.2).\n"


INTERPRETERS = {"whole": "echo whole", "usable": "echo usable", "old": "exit 1", "broken": "exit 127"}


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        (["a/python3.11: usable", "b/python3.11: whole"], "b/python3.11"),
        (["a/python3.11: usable", "b/python3: whole"], "b/python3"),
        (["a/python3.11: usable", "b/python3.13: usable"], "b/python3.13"),
        (["a/python3.13: broken", "a/python3.12: whole", "b/python3.13: old"], "a/python3.12"),
        (["a/python3.12: whole", "b/python3.12: whole"], "a/python3.12"),
        (["a/python: old", "b/python: usable"], "b/python"),
    ],
)
def test_statically_linked_interpreter_is_preferred(tmp_path: Path, found: list[str], chosen: str) -> None:
    folders = [tmp_path / "with space" / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir(parents=True)
    for each in found:
        name, kind = each.split(": ")
        interpreter = folders[0].parent / name
        interpreter.write_text(f"#!/bin/sh\n{INTERPRETERS[kind]}\n")
        interpreter.chmod(0o755)
    script = f'. "{ROOT}/bin/launch.inc"; find_python; echo "$python"'
    path = ":".join(map(str, folders))
    result = subprocess.run(["/bin/sh", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True)
    assert result.stdout == f"{folders[0].parent / chosen}\n"


def test_probe_reports_how_this_interpreter_is_linked() -> None:
    """The probe reports whether the interpreter is statically linked."""
    script = f'. "{ROOT}/bin/launch.inc"; "{sys.executable}" -I -c "$python_probe"'
    result = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    is_whole = "/libpython" not in Path("/proc/self/maps").read_text()
    has_headers = (Path(sysconfig.get_path("include")) / "Python.h").exists()
    assert result.stdout == ("whole\n" if is_whole and has_headers else "usable\n")


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_has_its_old_name(name: str) -> None:
    link = ROOT / "bin" / f"{name}.sh"
    assert link.is_symlink()
    assert link.readlink() == Path(name)
    assert os.access(link, os.X_OK)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The broker and its tools under another folder, so that brokers and logs are separate from the working tree.

    The bytecode files are there too: to compile the broker takes longer than to start it.
    """
    folder = tmp_path_factory.mktemp("installation")
    for path in ROOT.iterdir():
        if path.is_dir() and (path / "__init__.py").exists() and path.name not in ("bench", "spark_jobs", "tests"):
            shutil.copytree(path, folder / path.name)
    shutil.copytree(ROOT / "bin", folder / "bin", symlinks=True)
    environment = folder / ".venv" / "bin"
    environment.mkdir(parents=True)
    (environment / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (environment / "python").chmod(0o755)
    for lock in LOCKS:
        shutil.copy(ROOT / lock, folder)
        shutil.copy(ROOT / lock, folder / ".venv")
    return folder


def test_daemon_starts_and_stops(installation: Path, tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(f"broker.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=installation, capture_output=True, text=True, check=False, timeout=30)

    started = run("bin/kafka-server-start.sh", "-daemon", str(settings), "--override", "num.partitions=3")
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    log = installation / "logs" / "kafkaServer.out"
    wait_for(lambda: log.exists() and "[KafkaServer id=7] started" in log.read_text())
    assert "set by overrides: num.partitions=3" in log.read_text()
    assert run("bin/kafka-server-stop", "--node-id=8").stdout == "No kafka server to stop\n"
    assert run("bin/kafka-server-stop.sh").returncode == 0
    wait_for(lambda: run("bin/kafka-server-stop").returncode == 1)
    assert run("bin/kafka-server-stop").stdout == "No kafka server to stop\n"


def wait_for(condition: object, timeout_s: float = 30) -> None:
    assert callable(condition)
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_run_class_runs_a_tool_by_the_name_of_its_java_class(installation: Path) -> None:
    command = ("bin/kafka-run-class.sh", "-name", "x", "-loggc", "kafka.admin.TopicCommand", "--version")
    finished = subprocess.run(command, cwd=installation, capture_output=True, text=True, check=False, timeout=30)
    assert (finished.returncode, finished.stdout) == (0, "3.9.1 (Commit:f745dfdcee2b9851)\n")
