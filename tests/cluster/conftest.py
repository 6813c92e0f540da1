"""One cluster of real processes for all tests of this folder; each test uses its own topics and groups.

A test leaves brokers killed or halted; the next one begins with a healed cluster. `MILENA_TEST_CLUSTER=kafka` runs the
tests with Apache Kafka's brokers: a test that fails there is wrong.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.spark_jobs.conftest import spark as spark  # the fixture of the Spark session, for test_spark.py
from tests.support.cluster import Broker, Cluster, kafka_broker, milena_broker
from tests.support.parts import skip_when_unavailable

IS_KAFKA = os.environ.get("MILENA_TEST_CLUSTER") == "kafka"
PARTITIONS = 3
CREATE_TIMEOUT_S = 30
RETRY_PAUSE_S = 0.1

_numbers = itertools.count()


def broker_in_rack(broker_id: int, folder: Path, connect: str, settings: Mapping[str, str]) -> Broker:
    """Return a broker in a rack of its own. Only consumers that name a rack read from followers."""
    new_broker = kafka_broker if IS_KAFKA else milena_broker
    return new_broker(
        broker_id,
        folder,
        connect,
        {
            **settings,
            "broker.rack": f"rack-{broker_id}",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        },
    )


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with skip_when_unavailable(), Cluster(tmp_path_factory.mktemp("cluster"), new_broker=broker_in_rack) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The cluster with all its brokers."""
    shared_cluster.heal()
    return shared_cluster


def create_topic(
    cluster: Cluster,
    partitions: int = PARTITIONS,
    replicas: int = 3,
    assignment: Sequence[Sequence[int]] | None = None,
    **configs: str,
) -> str:
    """Create a topic and return its name, when it is in sync; `configs` have underscores for dots.

    `assignment` has the replicas of each partition, instead of their numbers.
    """
    name = f"numbers-{next(_numbers)}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    if assignment is None:
        new = NewTopic(name, partitions, replicas, config=settings)
    else:
        new = NewTopic(name, len(assignment), replica_assignment=[list(it) for it in assignment], config=settings)
    while True:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        try:
            admin.create_topics([new], operation_timeout=CREATE_TIMEOUT_S)[name].result(CREATE_TIMEOUT_S)
        except KafkaException as error:
            # The client was told of the controller that a test has deposed. It would ask that one for five minutes.
            if error.args[0].code() == KafkaError.NOT_CONTROLLER:
                time.sleep(RETRY_PAUSE_S)
                continue
            raise
        break
    cluster.wait_until_in_sync(name)
    return name


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A new topic with three partitions of three replicas each, all in sync."""
    return create_topic(cluster)


@pytest.fixture
def group() -> str:
    """A new group id."""
    return f"group-{next(_numbers)}"
