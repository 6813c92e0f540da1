"""The example of an asyncio service passes, and mypy and pyright accept the tests of all examples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import output_of
from tests.support.parts import need_command, skip_when_unavailable
from tests.testing.test_pytest_plugin import ROOT, run_pytest

EXAMPLES = ROOT / "examples"
CACHE = ROOT / ".mypy_cache" / "examples"
PROJECTS = ("pytest_async", "pytest_orders")
SOURCES = (ROOT, *(EXAMPLES / name for name in PROJECTS))
PYRIGHT = "pyright@1.1.414"
DOWNLOAD_TIMEOUT_S = 300
TYPED = """
from typing_extensions import assert_type

from milena_broker.testing import AsyncBroker, Broker, Cluster, Fault, Group, NewCluster, ProcessCluster, Record


def blocking(kafka_cluster: NewCluster) -> None:
    assert_type(kafka_cluster(3, racks=["a"]), ProcessCluster)
    assert_type(kafka_cluster(3, in_process=True), Cluster)
    with Broker({"num.partitions": 3}, tls=True) as broker:
        assert_type(broker, Broker)
        assert_type(broker.consume("t", 1), list[Record])
        assert_type(broker.fail_next("Produce", "INVALID_RECORD"), Fault)
        broker.consume(5)  # type: ignore[arg-type]


async def awaited() -> None:
    async with AsyncBroker({"num.partitions": 3}) as broker:
        assert_type(broker, AsyncBroker)
        assert_type(await broker.consume("t", 1), list[Record])
        assert_type(await broker.wait_for_group("g"), Group)
        async with broker.delay("Fetch", 5) as fault:
            assert_type(fault, Fault)
        await broker.consume("t", timeout=3)  # type: ignore[call-arg]
        broker.consume("t", 1).count  # type: ignore[attr-defined]
"""


def test_the_asyncio_example_passes() -> None:
    printed = run_pytest(EXAMPLES / "pytest_async", "-p", "asyncio", "-W", "error")
    assert "2 passed" in printed, printed


def typed_files(folder: Path) -> list[Path]:
    """Return the tests of the examples, and a file in the folder with what the fixtures return."""
    (folder / "typed.py").write_text(TYPED)
    return [folder / "typed.py", *sorted(path for name in PROJECTS for path in (EXAMPLES / name).rglob("test_*.py"))]


def test_types_of_the_examples_are_those_of_a_strict_checker(tmp_path: Path) -> None:
    files = typed_files(tmp_path)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\n[mypy-aiokafka]\nignore_missing_imports = True\n")
    checked = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", "--cache-dir", str(CACHE), *map(str, files)],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": os.pathsep.join(map(str, SOURCES))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.soak  # downloads a program for Node
@pytest.mark.timeout(2 * DOWNLOAD_TIMEOUT_S)
def test_pyright_accepts_the_examples_in_strict_mode(tmp_path: Path) -> None:
    with skip_when_unavailable():
        need_command("npm", "npm")
    for number, path in enumerate(typed_files(tmp_path)[1:]):  # pyright checks files of one folder
        shutil.copyfile(path, tmp_path / f"{number}_{path.name}")
    settings = {
        "include": ["*.py"],
        "extraPaths": [str(path) for path in SOURCES],
        "typeCheckingMode": "strict",
        "reportMissingTypeStubs": False,  # aiokafka has none
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    (tmp_path / "package.json").write_text("{}")
    output_of(["npm", "install", PYRIGHT], tmp_path, {}, DOWNLOAD_TIMEOUT_S)
    command = ["node_modules/.bin/pyright", "--pythonpath", sys.executable]
    output_of(command, tmp_path, {}, DOWNLOAD_TIMEOUT_S)
