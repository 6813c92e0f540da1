"""The wheel: its contents, and broker and tools that run from it beside a project with the same module names.

The tests need no network: the requirements of the build and of the broker are in the environment of the tests.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from base.compiled import MODULES, VARIABLE, source_of
from milena_broker import __version__
from tests.release_files import problems_of, problems_of_changelog
from tests.support.broker import BrokerProcess
from tests.support.commands import output_of

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"base", "broker", "config", "controller", "protocol", "spark_jobs", "storage", "tools"}
PRIVATE_FOLDER = "milena_broker/_modules"
DEADLINE_S = 60
OTHERS_MODULES = {
    "config.py": "OWNER = 'the project'\n",
    "tools/__init__.py": "OWNER = 'the project'\n",
    "storage.py": "raise ImportError('this is the storage module of the project')\n",
}


INTERPRETED = {VARIABLE: "no"}
COMMAND_DEADLINE_S = 180
"""Of a command that may itself run tests, on a machine that is busy."""


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """Run a command in a folder, fail unless it succeeds, and return its standard output."""
    return output_of(list(map(str, command)), folder, environment, COMMAND_DEADLINE_S)


def pip(*arguments: str | Path, folder: Path, **environment: str) -> None:
    pip = (sys.executable, "-P", "-m", "pip")
    run(
        *pip,
        *arguments,
        folder=folder,
        PIP_NO_INDEX="1",
        PIP_NO_INPUT="1",
        SOURCE_DATE_EPOCH="1700000000",
        **environment,
    )


def size_of(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it does not exist, as while cleaning replaces it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def build(hook: str, source: Path, folder: Path, **environment: str) -> Path:
    """Call `build_wheel` or `build_sdist` of the build backend in a source tree, as pip does; return what it built.

    pip would ask for the requirements and the metadata first, and each question compiles the modules to C again.
    """
    program = f"import sys; from setuptools.build_meta import {hook}; print({hook}(sys.argv[1]))"
    environment = {"SOURCE_DATE_EPOCH": "1700000000", **environment}
    return folder / run(sys.executable, "-P", "-c", program, folder, folder=source, **environment).split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel for this system. Its compiled modules are not optimized, which saves a quarter of the build."""
    folder = tmp_path_factory.mktemp("wheel")
    compiler = folder / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o755)
    return build("build_wheel", ROOT, folder, CC=str(compiler))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("build_sdist", ROOT, tmp_path_factory.mktemp("sdist"), **INTERPRETED)


@pytest.fixture(scope="module")
def pure_wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel for every system, built from the sdist."""
    folder = tmp_path_factory.mktemp("pure_wheel")
    run("tar", "-xf", sdist, folder=folder)
    return build("build_wheel", folder / sdist.name.removesuffix(".tar.gz"), folder, **INTERPRETED)


class Installation:
    """A project with a `config`, a `tools` and a `storage` of its own, and an environment for it."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.bin = folder / "venv" / "bin"
        # kafka-server-stop stops the brokers that the state folder lists.
        self.environment = {"PYTHONPATH": str(self.project), "XDG_STATE_HOME": str(folder / "state")}
        for name, text in OTHERS_MODULES.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        venv.create(folder / "venv", symlinks=True)
        (site_packages,) = (folder / "venv").glob("lib/python*/site-packages")
        dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (site_packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(dependencies)))
        self.site_packages = site_packages

    def install(self, *arguments: str | Path) -> None:
        python, options = self.bin / "python", ("--no-deps", "--no-build-isolation", "--no-compile")
        pip("--python", python, "install", *options, *arguments, folder=self.project, **INTERPRETED)

    def run(self, command: str, *arguments: str) -> str:
        """Run a command of the environment in the project's folder, which is first on the import path."""
        return run(self.bin / command, *arguments, folder=self.project, **self.environment)

    def start_command(self, settings: Path) -> list[str]:
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return ["env", "-C", str(self.project), *variables, str(self.bin / "kafka-server-start"), str(settings)]


@pytest.fixture(scope="module")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    installation = Installation(tmp_path_factory.mktemp("installation"))
    installation.install(wheel)
    return installation


@pytest.fixture(scope="module")
def broker(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that the installed `kafka-server-start` runs."""
    settings = {"log.cleaner.backoff.ms": "100"}
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, settings, command=installation.start_command) as process:
        yield process


def test_wheels_and_sdist_have_the_licence_and_the_metadata_of_the_release(
    wheel: Path, pure_wheel: Path, sdist: Path
) -> None:
    assert [problem for path in (wheel, pure_wheel, sdist) for problem in problems_of(path)] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            f"## [Unreleased]\n\n## [{__version__}] - 2026-01-31\n",
            "expected .* as the newest release, found Unreleased",
        ),
        (f"## [{__version__}] - Unreleased\n", "expected the date of .* as YYYY-MM-DD, found Unreleased"),
        (f"## [{__version__}]\n", "expected the date of .* as YYYY-MM-DD, found None"),
        ("", "expected .* as the newest release, found None"),
    ],
)
def test_a_release_needs_its_date_in_the_changelog(text: str, problem: str) -> None:
    assert list(problems_of_changelog(f"# Changelog\n\n## [{__version__}] - 2026-01-31\n")) == []
    (found,) = problems_of_changelog(text)
    assert re.search(problem, found)


def test_wheel_has_the_folders_of_the_repository(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    private = {name.removeprefix(f"{PRIVATE_FOLDER}/") for name in names if name.startswith(PRIVATE_FOLDER)}
    assert {name.partition("/")[0] for name in private} == FOLDERS


def test_every_package_of_the_repository_is_in_the_wheel() -> None:
    others = {"bench", "milena_broker", "tests"}
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} - others == FOLDERS


def test_every_file_of_the_folders_is_in_the_wheel_of_the_sdist(pure_wheel: Path) -> None:
    files = {path for folder in ("milena_broker", *FOLDERS) for path in (ROOT / folder).rglob("*") if path.is_file()}
    expected = {path.relative_to(ROOT) for path in files if path.suffix not in (".pyc", ".so")}
    in_wheel = {name.removeprefix(f"{PRIVATE_FOLDER}/"): data for name, data in contents(pure_wheel).items()}
    assert [str(path) for path in expected if in_wheel.get(str(path)) != (ROOT / path).read_bytes()] == []


def test_wheel_of_this_system_has_the_compiled_modules_beside_their_sources(wheel: Path, pure_wheel: Path) -> None:
    assert pure_wheel.name == f"milena_broker-{__version__}-py3-none-any.whl"
    assert wheel.name != pure_wheel.name
    pure, compiled = contents(pure_wheel), contents(wheel)
    added = compiled.keys() - pure.keys()
    sources = {f"{PRIVATE_FOLDER}/{source_of(name).relative_to(ROOT).with_suffix('')}" for name in MODULES}
    assert {name.partition(".")[0] for name in added} == sources
    modules = [name for name in pure if name.startswith(PRIVATE_FOLDER)]
    assert [name for name in modules if pure[name] != compiled[name]] == []


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_metadata_names_the_extras(installation: Installation) -> None:
    (folder,) = installation.site_packages.glob("milena_broker-*.dist-info")
    metadata = PathDistribution(folder).metadata
    assert metadata.get_all("Provides-Extra") == ["kerberos", "spark", "dev"]
    assert 'milena-broker[spark]; extra == "dev"' in (metadata.get_all("Requires-Dist") or [])


def test_project_keeps_its_modules(installation: Installation) -> None:
    program = "import sys; before = list(sys.path); import milena_broker, config, tools; "
    program += "print(config.OWNER, tools.OWNER, sys.path == before, sep='|')"
    assert installation.run("python", "-c", program) == "the project|the project|True\n"


def test_version_is_that_of_the_package(installation: Installation) -> None:
    assert installation.run("kafka-server-start", "--version").endswith(f"\nMilena {__version__}, hot loops compiled\n")


def test_broker_and_tools_run_beside_the_project(installation: Installation, broker: BrokerProcess) -> None:
    bootstrap = ("--bootstrap-server", broker.bootstrap)
    installation.run("kafka-topics", *bootstrap, "--create", "--topic", "greetings")
    assert installation.run("kafka-topics", *bootstrap, "--list") == "greetings\n"

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("greetings", b"hello")
    assert producer.flush(DEADLINE_S) == 0
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["greetings"])
    message = consumer.poll(DEADLINE_S)
    consumer.close()
    assert message is not None
    assert message.value() == b"hello"


def test_worker_process_compacts_a_log(broker: BrokerProcess) -> None:
    config = {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.01"}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("table", 1, config=config)])["table"].result(DEADLINE_S)
    segment = broker.log_dir / "table-0" / f"{0:020}.log"
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(20):
        producer.produce("table", key=b"key", value=bytes(300))
        assert producer.flush(DEADLINE_S) == 0
    deadline_s = time.monotonic() + DEADLINE_S
    # All records have one key, so after cleaning the first segment is smaller than one record.
    while size_of(segment) >= 300:
        assert time.monotonic() < deadline_s, broker.log.read_text()
        time.sleep(0.05)
    assert "ERROR" not in broker.log.read_text()


def test_module_without_console_script_runs_by_name(installation: Installation) -> None:
    assert "--bootstrap-servers" in installation.run(
        "python", "-m", "milena_broker", "spark_jobs.flights_produce", "--help"
    )


def test_editable_installation_runs_the_repository(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    installation.install("--editable", ROOT)
    assert f"\nMilena {__version__}, hot loops " in installation.run("kafka-server-start", "--version")
    program = "import milena_broker, config, tools; print(milena_broker.__path__, config.OWNER, tools.OWNER)"
    assert installation.run("python", "-c", program) == f"['{ROOT / 'milena_broker'}'] the project the project\n"


def test_daemon_of_an_installed_package_starts_and_stops(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon has a state folder of its own, so that `kafka-server-stop` stops no broker of another test."""
    monkeypatch.setitem(installation.environment, "XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setitem(installation.environment, "LOG_DIR", "")
    printed = installation.run("kafka-server-start", "-daemon", "--port", "0")
    log = tmp_path / "milena" / "logs" / "kafkaServer.out"
    assert printed == f"Started; it logs to {log}\n"
    deadline_s = time.monotonic() + DEADLINE_S
    while " started " not in log.read_text():
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.05)
    assert installation.run("kafka-server-stop", "--wait").startswith("Stopped 1 broker in ")
    assert "closed cleanly in " in log.read_text()
    assert (tmp_path / "milena" / "data" / "meta.properties").exists()


def test_example_project_runs_with_the_installed_fixtures(installation: Installation) -> None:
    """The example in examples/ finds the fixtures by their entry point, beside the project's own modules."""
    example = ROOT / "examples" / "pytest_orders"
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-n", "2")
    printed = installation.run("python", "-m", "pytest", *options, str(example))
    assert "12 passed" in printed


def test_installed_kafka_server_stop_stops_the_broker(installation: Installation, broker: BrokerProcess) -> None:
    installation.run("kafka-server-stop")
    assert broker.wait_for_exit() == 0
