"""What a release has beside the package: the GitHub Action, the hooks of pre-commit, containers without an engine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from milena_broker import __version__
from tests.support.commands import ROOT, launchers, output_of
from tests.support.java import UnavailableError
from tests.support.parts import skip_when_unavailable
from tools.launch.background import milena
from tools.launch.running_servers import running_brokers

KUBERNETES = ROOT / "examples" / "kubernetes" / "milena.yaml"
TIMEOUT_S = 60


# -- the action --------------------------------------------------------------------------------------------------------


def resolved(text: str, inputs: Mapping[str, str], folder: Path) -> str:
    """Return a value of the action with what GitHub puts into its expressions."""
    known = {f"inputs.{name}": value for name, value in inputs.items()} | {"github.action_path": str(folder)}
    return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda match: known[match[1]], text)


def test_the_action_starts_a_broker_for_the_next_steps(tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / "orders.jsonl").write_text('{"value": 1}\n')
    given = {
        "port": "0",
        "topics": "orders:3\ntotals",
        "seed": "seeds/orders.jsonl",
        "overrides": "log.retention.ms=60000\nbroker.rack=first rack; exit 3\n",
    }
    inputs = {name: str(one["default"]) for name, one in action["inputs"].items()} | given
    files = {name: tmp_path / name for name in ("GITHUB_PATH", "GITHUB_ENV", "GITHUB_OUTPUT")}
    path = launchers(tmp_path / "bin", "milena")
    variables = {name: resolved(value, inputs, tmp_path) for name, value in step["env"].items()}
    variables |= {name: str(file) for name, file in files.items()}
    try:
        # As GitHub runs `shell: bash`.
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        printed = output_of(command, tmp_path, variables, TIMEOUT_S)
        assert "topic orders: created, partitions: 3" in printed
        assert "seed seeds/orders.jsonl: appended to orders, records: 1" in printed
        (address,) = re.findall(r"^Started a broker at (\S+)", printed)
        assert files["GITHUB_ENV"].read_text() == f"KAFKA_BOOTSTRAP_SERVERS={address}\n"
        assert files["GITHUB_OUTPUT"].read_text() == f"bootstrap-servers={address}\n"
        assert files["GITHUB_PATH"].read_text() == f"{tmp_path / 'bin'}\n"
        assert "broker.rack=first rack; exit 3" in (tmp_path / ".milena" / "broker.log").read_text()
    finally:
        output_of(["milena", "down"], tmp_path, {"PATH": path}, TIMEOUT_S)


def test_hooks_of_pre_commit_are_commands_of_milena() -> None:
    for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()):
        tool, *arguments = hook["entry"].split()
        assert tool == "milena"
        assert f"milena-{milena._command_line().parse(arguments).command}" == hook["id"]


# -- containers --------------------------------------------------------------------------------------------------------


@pytest.fixture
def stateful_set() -> dict[str, Any]:
    return next(each for each in yaml.safe_load_all(KUBERNETES.read_text()) if each["kind"] == "StatefulSet")


@pytest.mark.soak  # the package of the schemas has a hundred megabytes
def test_the_kubernetes_example_is_valid() -> None:
    with skip_when_unavailable():
        if find_spec("kubernetes_validate") is None:
            raise UnavailableError("needs kubernetes-validate: pip install --requirement requirements-release.lock")
    import kubernetes_validate

    for resource in yaml.safe_load_all(KUBERNETES.read_text()):
        kubernetes_validate.validate(resource, "1.31", strict=True)


def test_the_container_of_the_pod_starts_and_passes_its_probes(tmp_path: Path, stateful_set: dict[str, Any]) -> None:
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"milena:{__version__}"
    (volume,) = container["volumeMounts"]
    variables = {each["name"]: each["value"].replace("$(POD_NAME)", "milena-0") for each in container["env"][1:]}
    with outside_a_container(tmp_path, volume["mountPath"], (), variables) as http:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["port"] in {port["name"] for port in container["ports"]}
            with urllib.request.urlopen(f"{http}{container[probe]['httpGet']['path']}") as response:
                assert response.status == 200
    assert (tmp_path / "volume" / "data" / "meta.properties").exists()


def test_the_broker_of_docker_compose_starts_and_serves_its_console(tmp_path: Path) -> None:
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["broker"]
    volume = service["volumes"][0].partition(":")[2]
    with (
        outside_a_container(tmp_path, volume, service["command"], {}) as http,
        urllib.request.urlopen(f"{http}/") as page,
    ):
        assert "Milena" in page.read().decode()
    assert (tmp_path / "volume" / "meta.properties").exists()


@contextmanager
def outside_a_container(
    folder: Path, volume: str, arguments: Sequence[str], variables: Mapping[str, str]
) -> Iterator[str]:
    """Start the broker of a container with free ports on this machine, and with a folder in place of its volume.

    Yields the address of its console. Afterwards the broker has to end cleanly, and to have logged no warning.
    """

    def here(text: str) -> str:
        return re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", text).replace(volume, str(folder / "volume"))

    command = [*map(here, arguments), "--environment", "--run-folder", str(folder / "run")]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "milena_broker", "tools.launch.server_start", *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **{name: here(value) for name, value in variables.items()}},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield served_http(process, folder / "run")
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=TIMEOUT_S)
        assert "closed cleanly" in log, log
        assert "WARN" not in log, log


def served_http(process: subprocess.Popen[str], run_folder: Path) -> str:
    deadline_s = time.monotonic() + TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        for broker in running_brokers(run_folder):
            if found := [address for address in broker.addresses if address.startswith("http:")]:
                return found[0]
        time.sleep(0.02)
    raise AssertionError("the broker does not serve HTTP")
