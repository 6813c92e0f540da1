"""The examples in other languages pass their own tests, with a broker that `milena up` starts."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.commands import output_of
from tests.support.parts import need_command, skip_when_unavailable

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DOWNLOADED = shutil.ignore_patterns("node_modules", "target")
TIMEOUT_S = 900
MILENA = (sys.executable, "-P", "-m", "milena_broker", "tools.launch.background.milena")

PACKAGES: Mapping[str, str] = {"npm": "npm", "go": "golang-go", "mvn": "maven", "cargo": "cargo"}
"""The package of the system that has a program."""
COMMANDS: Mapping[str, Sequence[Sequence[str]]] = {
    "node": [("npm", "ci"), ("npm", "test")],
    "go": [("go", "test", "./...")],
    "java": [("mvn", "--batch-mode", "--quiet", "test")],
    "rust": [("cargo", "test", "--locked")],
}


@pytest.mark.soak  # downloads the clients; that of Rust compiles for two minutes
@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize("language", COMMANDS)
def test_the_example_passes_its_tests(tmp_path: Path, language: str) -> None:
    with skip_when_unavailable():
        need_command(COMMANDS[language][0][0], PACKAGES[COMMANDS[language][0][0]])
    project = tmp_path / language
    shutil.copytree(EXAMPLES / language, project, ignore=DOWNLOADED)

    def milena(*arguments: str) -> str:
        return output_of([*MILENA, *arguments], tmp_path, {"PYTHONPATH": str(ROOT)}, TIMEOUT_S)

    seed = str(EXAMPLES / "orders.jsonl")
    address = json.loads(milena("up", "--port", "0", "--topics", "orders:3", "--seed", seed, "--json"))
    try:
        for command in COMMANDS[language]:
            output_of(command, project, {"KAFKA_BOOTSTRAP_SERVERS": address["bootstrap_servers"]}, TIMEOUT_S)
    finally:
        milena("down")
