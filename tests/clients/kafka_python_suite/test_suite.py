"""kafka-python's own integration tests against a broker of ours, one run for each version that it shall believe in.

Its source distribution holds them; it is fetched once into `.cache` and not a part of this tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version as installed_version
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.broker import ROOT, BrokerProcess
from tests.support.java import UnavailableError
from tests.support.parts import skip_when_unavailable

CACHE = ROOT / ".cache" / "kafka-python"
SERVICE = Path(__file__).with_name("service.py")
FETCH_TIMEOUT_S = 300
RUN_TIMEOUT_S = 300
# Before 0.10.1 the suite makes its topics with Kafka's shell scripts.
VERSIONS = ("0.10.1.0", "0.11.0", "1.1.0", "2.8.0", "3.9.0", "4.0.0")
TESTS_MIN = 40

# The end of a test's name -> why it cannot pass here. The SSL and SASL tests only run with a broker of their own.
EXPECTED_FAILURES: Mapping[str, str] = {
    "test_create_describe_delete_acls": "needs an authorizer",
    "test_ssl_handshake": "starts a broker of its own",
    "test_legacy_kafka_client_ssl": "starts a broker of its own",
}
# What the suite asks of brokers from 4.0 on only.
FAILURES_FROM_4_0_ON: Mapping[str, str] = {
    "test_describe_metadata_quorum": "a quorum exists in KRaft mode only",
    "test_describe_configs_broker_resource_returns_configs": "expects advertised.listeners as KRaft describes them",
}
VERSION_INFERENCE = "test_kafka_version_infer"
"""Fails unless the version it shall believe in is the one that a broker shows."""
SHOWN_VERSION = "4.0.0"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the suite, and what its distribution leaves out."""
    folder = tmp_path_factory.mktemp("kafka-python")
    with skip_when_unavailable(), tarfile.open(_source_distribution()) as archive:
        # `filter="data"` needs Python 3.11.4.
        archive.extractall(folder, [each for each in archive if each.isfile() and ".." not in Path(each.name).parts])
    (unpacked,) = folder.iterdir()
    (unpacked / "test" / "__init__.py").touch()
    shutil.copy(SERVICE, unpacked / "test" / "service.py")
    return unpacked


def _source_distribution() -> Path:
    version = installed_version("kafka-python")
    archive = CACHE / f"kafka_python-{version}.tar.gz"
    if not archive.exists():
        fetch = ["pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(CACHE)]
        done = subprocess.run(
            [sys.executable, "-m", *fetch, f"kafka-python=={version}"],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise UnavailableError(f"needs the source distribution of kafka-python {version}: {done.stderr[-200:]}")
    return archive


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that no other test uses: the suite changes settings of brokers too."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {"num.partitions": "4"}) as broker:
        yield broker


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_python_suite_passes(suite: Path, serving: BrokerProcess, tmp_path: Path, version: str) -> None:
    report = tmp_path / "report.xml"
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://{serving.bootstrap}",
        "KAFKA_VERSION": version,
        "KAFKA_ROOT": str(tmp_path),
        "PYTHONPATH": str(suite),
    }
    # fmt: off
    command = [
        sys.executable, "-P", "-m", "pytest", "test/integration", "-c", os.devnull, "--rootdir", str(suite),
        "-p", "no:cacheprovider", "-W", "ignore", "--junitxml", str(report), "--tb=short",
    ]
    # fmt: on
    done = subprocess.run(
        command, cwd=suite, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    cases = list(ET.parse(report).iter("testcase"))
    failed = {
        case.get("name", "") for case in cases if case.find("failure") is not None or case.find("error") is not None
    }
    expected = {*EXPECTED_FAILURES, *([VERSION_INFERENCE] if version != SHOWN_VERSION else [])}
    if version.startswith("4."):
        expected |= FAILURES_FROM_4_0_ON.keys()
    assert failed <= expected, done.stdout[-6000:]
    assert len(cases) >= TESTS_MIN
