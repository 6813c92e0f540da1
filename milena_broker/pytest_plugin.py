"""Fixtures for pytest: `kafka_broker`, `kafka_topic` and `kafka_cluster`.

An installed Milena has them without an import (entry point `pytest11`). This module is imported by every run of
pytest in the environment, so it imports the brokers only when a test uses one.

Owns the fixtures' life. Must not know what a broker is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from milena_broker.testing import Broker, Cluster

TOPIC_LENGTH_MAX = 200  # Kafka allows 249; a number follows


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


@pytest.fixture
def kafka_topic(kafka_broker: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic of one partition on `kafka_broker`, which no other test uses."""
    from uuid import uuid4

    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:TOPIC_LENGTH_MAX]
    topic = f"{name}-{uuid4().hex[:8]}"
    kafka_broker.create_topic(topic)
    return topic


@pytest.fixture
def kafka_cluster() -> Iterator[Callable[..., Any]]:
    """A function that starts a cluster: `kafka_cluster(3)`. The clusters end with the test.

    Each broker has a process of its own, which a test can kill, pause and isolate (`ProcessCluster`). With
    `in_process=True` all brokers share one process, which starts sooner (`Cluster`).
    """
    from contextlib import ExitStack

    from milena_broker.testing import Cluster, ProcessCluster

    with ExitStack() as stack:

        def start(brokers: int = 3, *arguments: Any, in_process: bool = False, **options: Any) -> Cluster:
            kind = Cluster if in_process else ProcessCluster
            return stack.enter_context(kind(brokers, *arguments, **options))

        yield start
