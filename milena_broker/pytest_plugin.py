"""Fixtures for pytest: `kafka_broker`, `kafka_topic`, `kafka_cluster` and others.

An installed Milena has them without an import (entry point `pytest11`). This module is imported by every run of
pytest in the environment, so it imports the brokers only when a test uses one.

Owns the fixtures' life, and what a failed test shows of its brokers. Must not know what a broker is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from milena_broker.testing import AsyncBroker, Broker, Cluster, NewCluster, SchemaRegistry

TOPIC_LENGTH_MAX = 200  # Kafka allows 249; a number follows
LOG_LINES_MAX = 40
"""How many lines of a broker's log a failed test shows at most."""

_clusters = pytest.StashKey[list[Any]]()
"""The clusters that `kafka_cluster` has started for a test."""
_log_ends = pytest.StashKey[dict[Path, int]]()
"""Where the logs of a test's brokers ended when it began."""


@pytest.fixture(scope="session")
def kafka_broker_options() -> Mapping[str, Any]:
    """Override this fixture to start `kafka_broker` with other arguments of `milena_broker.testing.Broker`."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker(kafka_broker_options: Mapping[str, Any]) -> Iterator[Broker]:
    """One broker for the whole run (with pytest-xdist: for each worker)."""
    from milena_broker.testing import Broker

    with Broker(**kafka_broker_options) as broker:
        yield broker


@pytest.fixture(scope="session")
def async_kafka_broker(kafka_broker: Broker) -> AsyncBroker:
    """The broker of `kafka_broker`, with calls that are awaited."""
    from milena_broker.testing import AsyncBroker

    return AsyncBroker.of(kafka_broker)


@pytest.fixture
def kafka_topic(kafka_broker: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic of one partition on `kafka_broker`, which no other test uses."""
    from uuid import uuid4

    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:TOPIC_LENGTH_MAX]
    topic = f"{name}-{uuid4().hex[:8]}"
    kafka_broker.create_topic(topic)
    return topic


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[NewCluster]:
    """A function that starts a cluster: `kafka_cluster(3)`. The clusters end with the test.

    Each broker has a process of its own, which a test can kill, pause and isolate (`ProcessCluster`). With
    `in_process=True` all brokers share one process, which starts sooner (`Cluster`).
    """
    from contextlib import ExitStack

    from milena_broker.testing import Cluster, ProcessCluster

    started = request.node.stash.setdefault(_clusters, [])
    with ExitStack() as stack:

        def start(brokers: int = 3, *arguments: Any, in_process: bool = False, **options: Any) -> Any:
            kind = Cluster if in_process else ProcessCluster
            cluster = stack.enter_context(kind(brokers, *arguments, **options))
            started.append(cluster)
            return cluster

        yield start


@pytest.fixture(scope="session")
def kafka_schema_registry() -> Iterator[SchemaRegistry]:
    """One schema registry for the whole run (with pytest-xdist: for each worker)."""
    from milena_broker.testing import SchemaRegistry

    with SchemaRegistry() as registry:
        yield registry


# -- what a failed test shows ------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    item.stash[_log_ends] = {path: size for path in _logs_of(item) if (size := _size_of(path))}
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failed test what its brokers have logged during the test."""
    report = yield
    if report.failed:
        ends = item.stash.get(_log_ends, {})
        for path in _logs_of(item):
            lines = _text_from(path, ends.get(path, 0)).splitlines()[-LOG_LINES_MAX:]
            if lines:
                report.sections.append((f"Log of Kafka {path.stem}", "\n".join(lines) + "\n"))
    return report


def _logs_of(item: pytest.Item) -> list[Path]:
    """Return the logs of the brokers that a test has as fixtures, and that run."""
    if "milena_broker.testing" not in sys.modules:
        return []
    from milena_broker.testing import AsyncCluster, BrokerError, Cluster

    found: list[Path] = []
    values = [*getattr(item, "funcargs", {}).values(), *item.stash.get(_clusters, [])]
    for value in values:
        cluster: Cluster | None = value.blocking if isinstance(value, AsyncCluster) else value
        if isinstance(cluster, Cluster):
            try:
                found += [path for path in cluster.logs if path not in found]
            except BrokerError:  # it has ended, and its temporary folder is gone
                continue
    return found


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _text_from(path: Path, position: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read().decode(errors="replace")
    except OSError:
        return ""
