"""The fixtures, in runs of pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TESTS = """
import pytest

def test_topic_is_new(kafka_broker, kafka_topic):
    kafka_broker.produce(kafka_topic, ["x"])
    assert len(kafka_broker.consume(kafka_topic)) == 1

@pytest.mark.parametrize("value", ["a/b", "é", "x" * 300])
def test_topics_may_have_any_parameter_in_their_names(kafka_broker, kafka_topic, value):
    kafka_broker.produce(kafka_topic, [value])
    assert len(kafka_broker.consume(kafka_topic)) == 1

def test_cluster_has_as_many_brokers_as_asked_for(kafka_cluster):
    cluster = kafka_cluster(2)
    assert cluster.bootstrap_servers.count(",") == 1
"""

OPTIONS = """
import pytest

@pytest.fixture(scope="session")
def kafka_broker_options():
    return {"as_version": "2.8", "topics": {"made": 3}}
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "milena_broker.pytest_plugin", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "-p no:cacheprovider -p no:asyncio"},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout + run.stderr


def test_fixtures_work_in_parallel_workers(tmp_path: Path) -> None:
    (tmp_path / "test_fixtures.py").write_text(TESTS)
    printed = run_pytest(tmp_path, "-n", "2", "-W", "error")
    assert "5 passed" in printed, printed


def test_options_of_the_broker_are_a_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(OPTIONS)
    (tmp_path / "test_options.py").write_text(
        "def test_made(kafka_broker):\n    kafka_broker.produce('made', [{'value': 'x', 'partition': 2}])\n"
    )
    assert "1 passed" in run_pytest(tmp_path, "-W", "error")


def test_fixtures_are_listed_with_their_purpose(tmp_path: Path) -> None:
    printed = run_pytest(tmp_path, "--fixtures")
    assert "kafka_topic -- " in printed
    assert "The name of a new topic" in printed


FAILING = """
import pytest
from milena_broker.testing import BrokerError

def test_fails(kafka_broker):
    kafka_broker.create_topic("shown-in-the-log")
    kafka_broker.consume("missing")

async def test_awaits(async_kafka_broker):
    assert await async_kafka_broker.produce("t", ["x"]) == 1

def test_cluster_fails(kafka_cluster):
    kafka_cluster(1, in_process=True).create_topic("in-the-cluster")
    assert False
"""


def test_a_failed_test_shows_its_own_lines_and_the_log_of_its_brokers(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    printed = run_pytest(tmp_path, "-o", "asyncio_mode=auto", "-p", "asyncio")
    assert "2 failed, 1 passed" in printed, printed
    assert "Log of Kafka broker" in printed
    assert "shown-in-the-log" in printed.partition("Log of Kafka broker")[2]
    assert "in-the-cluster" in printed.rpartition("Log of Kafka broker")[2]
    assert "milena_broker/testing/" not in printed, "internals of the package are hidden"
    assert 'kafka_broker.consume("missing")' in printed
