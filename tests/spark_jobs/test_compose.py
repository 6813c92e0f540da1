"""The compose file and the Dockerfile, checked as data: this finds services that cannot start without a Docker engine.

An installed compose command must accept the file as well.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from config import properties
from config.broker import BrokerConfig
from spark_jobs import flights_daily

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
BROKERS = {"broker", "broker-1", "broker-2", "broker-3"}
PIPELINE = {"spark-master", "spark-worker", "pipeline"}
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


def overrides(service: Service) -> dict[str, str]:
    flags = [flag.removeprefix("--override=") for flag in service["command"] if flag.startswith("--override=")]
    return dict(flag.split("=", 1) for flag in flags)


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


def test_every_broker_starts_with_settings_that_the_broker_accepts(services: dict[str, Service]) -> None:
    static = properties.load(str(ROOT / "config" / "server.properties"))
    for name in BROKERS:
        assert services[name]["command"][0] == "config/server.properties"
        assert not BrokerConfig.from_properties(static, overrides(services[name])).warnings


def test_every_broker_is_reachable_at_its_advertised_listeners(services: dict[str, Service]) -> None:
    host_ports = set()
    for name in BROKERS:
        settings = overrides(services[name])
        bound, advertised = listeners(settings["listeners"]), listeners(settings["advertised.listeners"])
        (published,) = services[name]["ports"]
        host, outside, inside = published.split(":")
        assert (host, bound["EXTERNAL"]) == ("127.0.0.1", f"0.0.0.0:{inside}")
        assert advertised["EXTERNAL"] == f"localhost:{outside}"
        assert advertised["INTERNAL"] == f"{name}:{bound['INTERNAL'].split(':')[1]}"
        host_ports.add(outside)
    assert len(host_ports) == len(BROKERS)


def test_the_cluster_has_three_brokers_with_their_own_ids_and_data(services: dict[str, Service]) -> None:
    cluster = [overrides(services[name]) for name in sorted(BROKERS) if services[name].get("profiles") == ["cluster"]]
    assert [settings["broker.id"] for settings in cluster] == ["1", "2", "3"]
    assert {settings["zookeeper.connect"] for settings in cluster} == {"zookeeper:2181"}
    assert {settings["offsets.topic.replication.factor"] for settings in cluster} == {"3"}
    assert {settings["default.replication.factor"] for settings in cluster} == {"3"}
    assert {settings["min.insync.replicas"] for settings in cluster} == {"2"}
    assert all(services[name]["restart"] == "unless-stopped" for name in BROKERS)


@pytest.mark.parametrize("name", ["spark", "pipeline"])
def test_the_spark_services_run_a_job_with_flags_that_it_accepts(name: str, services: dict[str, Service]) -> None:
    job, *flags = services[name]["command"]
    assert job == "flights_daily"
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


def test_images_run_as_a_user_and_install_only_packages_with_hashes(dockerfile: str) -> None:
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", dockerfile, re.MULTILINE | re.DOTALL))
    for image in ("broker", "spark"):
        assert "\nUSER milena\n" in stages[image]
        assert "pip install" not in stages[image]
    for lock in ("requirements.lock", "requirements-spark.lock"):
        requirements = re.split(r"^(?=[A-Za-z0-9])", (ROOT / lock).read_text(), flags=re.MULTILINE)[1:]
        assert requirements
        assert all("--hash=sha256:" in requirement for requirement in requirements)


def test_the_build_context_contains_all_copied_files(dockerfile: str) -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / path).exists() for path in kept)
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE):
        assert {Path(source).parts[0] for source in line.split() if source != "."} <= kept


def test_installed_compose_commands_accept_the_file() -> None:
    for command in COMPOSE_COMMANDS:
        if shutil.which(command[0]) is None:
            continue
        if subprocess.run([*command, "version"], check=False, capture_output=True).returncode:
            continue  # a Docker client without the plug-in
        check = [*command, "-f", str(COMPOSE), "--profile", "cluster", "--profile", "pipeline", "config", "--quiet"]
        done = subprocess.run(check, check=False, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
