"""The compose file and the Dockerfile, checked as data: this finds services that cannot start without a Docker engine.

The programs' own parsers read the command lines of the services and those of the documentation. An installed compose
command must accept the file as well.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from base import properties
from config.broker import BrokerConfig
from milena_broker.testing import Broker
from spark_jobs import flights_daily
from tests.spark_jobs.quick_drivers import job_environment
from tests.spark_jobs.test_documentation import assert_is_accepted
from tests.support.java import SHORT_LIVED, java_executable
from tests.support.parts import skip_when_unavailable
from tools.launch import start_options

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
BROKERS = {"broker", "broker-1", "broker-2", "broker-3"}
PIPELINE = {"spark-master", "spark-worker", "pipeline"}
OF_READERS = "from-docker-compose.md"
"""The page whose commands are for the compose files of its readers."""
START_TIMEOUT_S = 90
COMPOSE_COMMANDS = (["docker", "compose"], ["docker-compose"])

Service = dict[str, Any]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text())


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Service]:
    return compose["services"]


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def stages(dockerfile: str) -> dict[str, str]:
    """The instructions of each stage of the Dockerfile."""
    return dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", dockerfile, re.MULTILINE | re.DOTALL))


def command_line(service: Service, stages: dict[str, str]) -> tuple[str, list[str]]:
    """Return the program and the arguments of a service whose image is built here."""
    entrypoint = service.get("entrypoint")
    if entrypoint is None:
        (written,) = re.findall(r"^ENTRYPOINT (.+)$", stages[service["build"]["target"]], re.MULTILINE)
        entrypoint = json.loads(written)
    program, *arguments = [*entrypoint, *service["command"]]
    return program, arguments


def overrides(service: Service) -> Mapping[str, str]:
    return start_options.parse(service["command"]).overrides


def in_the_build_context() -> set[str]:
    return {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}


def listeners(value: str) -> dict[str, str]:
    return dict(listener.split("://") for listener in value.split(","))


def test_services_are_those_of_the_guide(services: dict[str, Service]) -> None:
    assert set(services) == BROKERS | {"spark", "zookeeper"} | PIPELINE
    assert all(services[name]["profiles"] == ["pipeline"] for name in PIPELINE)
    assert all(service["healthcheck"]["test"] and service["restart"] for service in services.values())


def test_dependencies_build_targets_and_volumes_exist(
    compose: dict[str, Any], services: dict[str, Service], dockerfile: str
) -> None:
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        if "build" in service:
            assert f" AS {service['build']['target']}\n" in dockerfile
    mounted = {volume.split(":")[0] for service in services.values() for volume in service["volumes"]}
    assert mounted == set(compose["volumes"])


def test_the_file_uses_no_environment_variables() -> None:
    assert "$" not in COMPOSE.read_text()


def test_every_program_is_an_executable_file_of_its_image(services: dict[str, Service], stages: dict[str, str]) -> None:
    built = {name: command_line(service, stages)[0] for name, service in services.items() if "build" in service}
    assert set(services) - set(built) == {"zookeeper"}
    for program in built.values():
        assert Path(program).parts[0] in {".venv", *in_the_build_context()}
        assert os.access(ROOT / program, os.X_OK), program


def test_every_broker_starts_with_settings_that_the_broker_accepts(
    services: dict[str, Service], stages: dict[str, str]
) -> None:
    for name in BROKERS:
        program, arguments = command_line(services[name], stages)
        assert program == "bin/kafka-server-start"
        options = start_options.parse(arguments)
        assert options.uses_environment
        assert options.file == "config/server.properties"
        static = properties.load(str(ROOT / options.file))
        assert not BrokerConfig.from_properties(static, options.overrides).warnings


def test_every_broker_is_reachable_at_its_advertised_listeners(services: dict[str, Service]) -> None:
    host_ports = set()
    for name in BROKERS:
        settings = overrides(services[name])
        bound, advertised = listeners(settings["listeners"]), listeners(settings["advertised.listeners"])
        published, *_ = services[name]["ports"]
        host, outside, inside = published.split(":")
        assert (host, bound["EXTERNAL"]) == ("127.0.0.1", f"0.0.0.0:{inside}")
        assert advertised["EXTERNAL"] == f"localhost:{outside}"
        assert advertised["INTERNAL"] == f"{name}:{bound['INTERNAL'].split(':')[1]}"
        host_ports.add(outside)
    assert len(host_ports) == len(BROKERS)


def test_the_console_of_the_single_broker_is_published(services: dict[str, Service]) -> None:
    _, console = services["broker"]["ports"]
    inside = overrides(services["broker"])["metrics.http.listener"].rpartition(":")[2]
    assert console == f"127.0.0.1:{inside}:{inside}"


def test_the_cluster_has_three_brokers_with_their_own_ids_and_data(services: dict[str, Service]) -> None:
    cluster = [overrides(services[name]) for name in sorted(BROKERS) if services[name].get("profiles") == ["cluster"]]
    assert [settings["broker.id"] for settings in cluster] == ["1", "2", "3"]
    assert {settings["zookeeper.connect"] for settings in cluster} == {"zookeeper:2181"}
    assert {settings["offsets.topic.replication.factor"] for settings in cluster} == {"3"}
    assert {settings["default.replication.factor"] for settings in cluster} == {"3"}
    assert {settings["min.insync.replicas"] for settings in cluster} == {"2"}
    assert all(services[name]["restart"] == "unless-stopped" for name in BROKERS)


@pytest.mark.parametrize("name", ["spark", "pipeline"])
def test_the_spark_services_run_a_job_with_flags_that_it_accepts(
    name: str, services: dict[str, Service], stages: dict[str, str]
) -> None:
    program, (job, *flags) = command_line(services[name], stages)
    assert (program, job) == ("bin/spark-job", "flights_daily")
    parameters = flights_daily.JOB.parse(flags)
    assert parameters.bootstrap_servers == listeners(overrides(services["broker"])["advertised.listeners"])["INTERNAL"]
    assert f"{parameters.checkpoint}/metadata" in services[name]["healthcheck"]["test"]


def test_the_spark_cluster_has_one_master_whose_address_all_use(services: dict[str, Service]) -> None:
    parameters = flights_daily.JOB.parse(services["pipeline"]["command"][1:])
    assert parameters.master == "spark://spark-master:7077"
    assert parameters.master in services["spark-worker"]["entrypoint"]
    assert services["spark-master"]["entrypoint"][-2:] == ["--host", "spark-master"]
    assert parameters.spark_conf["spark.driver.host"] == "pipeline"
    volumes = {tuple(services[name]["volumes"]) for name in PIPELINE}
    assert volumes == {("spark-data:/var/lib/milena",)}


@pytest.mark.spark
@pytest.mark.parametrize("name", ["spark-master", "spark-worker"])
def test_spark_accepts_the_options_of_its_servers(
    name: str, services: dict[str, Service], stages: dict[str, str]
) -> None:
    """Spark reads the options in their order: `--help` as the last of them ends the server if all others are valid."""
    with skip_when_unavailable():
        java_executable()
    program, arguments = command_line(services[name], stages)
    variables = re.findall(r"^ENV (\w+)=(.+)$", stages["spark"], re.MULTILINE)
    environment = job_environment() | {key: value.replace("/opt/milena", str(ROOT)) for key, value in variables}
    environment["JAVA_TOOL_OPTIONS"] = " ".join(SHORT_LIVED)
    command = [program, *arguments, "--help"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Usage: " in done.stderr


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(3 * START_TIMEOUT_S)
def test_the_spark_service_becomes_healthy_outside_a_container(tmp_path: Path, services: dict[str, Service]) -> None:
    """Its command with a broker of this machine, and a folder in place of its volume, until its health check passes."""
    with skip_when_unavailable():
        java_executable()
    service = services["spark"]
    *_, checked = service["healthcheck"]["test"]
    with Broker() as broker:
        command = [
            part.replace("broker:19092", broker.bootstrap_servers).replace("/var/lib/milena", str(tmp_path))
            for part in service["command"]
        ]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "spark_jobs", *command],
            cwd=tmp_path,
            env=job_environment() | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not Path(checked.replace("/var/lib/milena", str(tmp_path))).exists():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=START_TIMEOUT_S)
    assert process.returncode == 0, printed


def test_health_checks_run_code_that_exists(services: dict[str, Service]) -> None:
    checks = [service["healthcheck"]["test"] for name, service in services.items() if name != "zookeeper"]
    for kind, program, option, text in checks:
        assert kind == "CMD"
        match program, option:
            case ".venv/bin/python", "-m":
                assert find_spec(text) is not None, text
            case ".venv/bin/python", "-c":
                compile(text, "healthcheck", "exec")
            case _:
                assert (program, option) == ("test", "-f")


def documented() -> Iterator[Namespace]:
    """Yield each `docker compose` command of the documentation and of the file's first lines, parsed."""
    parser = ArgumentParser("docker compose")
    parser.add_argument("--profile", action="append", default=[])
    actions = parser.add_subparsers(dest="action", required=True)
    up = actions.add_parser("up")
    up.add_argument("--build", action="store_true", required=True)
    up.add_argument("services", nargs="*")
    run = actions.add_parser("run")
    run.add_argument("--rm", action="store_true", required=True)
    run.add_argument("service")
    run.add_argument("command", nargs=REMAINDER)
    for page in (*(page for page in (ROOT / "docs").glob("*.md") if page.name != OF_READERS), COMPOSE):
        for words in re.findall(r"docker compose((?: [^\s`]+)+)", page.read_text()):
            yield parser.parse_args(shlex.split(words))


def test_documented_commands_name_profiles_and_services_that_exist(services: dict[str, Service]) -> None:
    profiles = {profile for service in services.values() for profile in service.get("profiles", ())}
    commands = [command for command in documented() if command.action == "up"]
    assert {profile for command in commands for profile in command.profile} == profiles
    for command in commands:
        enabled = {
            name
            for name, service in services.items()
            if "profiles" not in service or set(service["profiles"]) & set(command.profile)
        }
        started = set(command.services) or enabled
        assert started <= enabled
        assert {needed for name in started for needed in services[name].get("depends_on", ())} <= enabled


def test_documented_runs_have_flags_that_their_jobs_accept(
    services: dict[str, Service], stages: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [command for command in documented() if command.action == "run"]
    assert commands
    for command in commands:
        assert command_line(services[command.service], stages)[0] == "bin/spark-job"
        assert_is_accepted(command.command, monkeypatch)


def test_images_run_as_a_user_and_install_only_packages_with_hashes(stages: dict[str, str]) -> None:
    for image in ("broker", "spark"):
        assert "\nUSER milena\n" in stages[image]
        assert "pip install" not in stages[image]
    for lock in ("requirements.lock", "requirements-spark.lock"):
        requirements = re.split(r"^(?=[A-Za-z0-9])", (ROOT / lock).read_text(), flags=re.MULTILINE)[1:]
        assert requirements
        assert all("--hash=sha256:" in requirement for requirement in requirements)


def test_the_build_context_contains_all_copied_files(dockerfile: str) -> None:
    kept = in_the_build_context()
    assert all((ROOT / path).exists() for path in kept)
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE):
        assert {Path(source).parts[0] for source in line.split() if source != "."} <= kept


@pytest.mark.soak  # needs Docker or Podman
def test_installed_compose_commands_accept_the_file() -> None:
    for command in COMPOSE_COMMANDS:
        if shutil.which(command[0]) is None:
            continue
        if subprocess.run([*command, "version"], check=False, capture_output=True).returncode:
            continue  # a Docker client without the plug-in
        check = [*command, "-f", str(COMPOSE), "--profile", "cluster", "--profile", "pipeline", "config", "--quiet"]
        done = subprocess.run(check, check=False, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
