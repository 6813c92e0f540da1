"""Brokers for tests: a Kafka broker of its own process, without Java, that starts in a fraction of a second.

    from milena_broker.testing import Broker

    with Broker() as broker:
        broker.produce("orders", ["first", "second"])
        assert [record.value for record in broker.consume("orders")] == [b"first", b"second"]

`pytest` finds the fixtures `kafka_broker`, `kafka_topic` and `kafka_cluster` by itself (`milena_broker.pytest_plugin`).

Owns the process of the brokers from the side of the test. It imports the standard library alone, so that it puts no
module of the broker into the test process: the process that hosts the brokers (`tools.launch.fixture.broker_host`) does
the work.
"""

from milena_broker.testing.async_broker import (
    AsyncBroker,
    AsyncCluster,
    AsyncClusterBroker,
    AsyncProcessCluster,
    AsyncSchemaRegistry,
)
from milena_broker.testing.broker import Broker, Cluster
from milena_broker.testing.controls import Fault
from milena_broker.testing.hosted_process import BrokerError
from milena_broker.testing.new_cluster import NewCluster
from milena_broker.testing.process_cluster import ClusterBroker, ProcessCluster
from milena_broker.testing.records import Group, Record
from milena_broker.testing.schema_registry import SchemaRegistry
from milena_broker.testing.steps import Change

__all__ = [
    "AsyncBroker",
    "AsyncCluster",
    "AsyncClusterBroker",
    "AsyncProcessCluster",
    "AsyncSchemaRegistry",
    "Broker",
    "BrokerError",
    "Change",
    "Cluster",
    "ClusterBroker",
    "Fault",
    "Group",
    "NewCluster",
    "ProcessCluster",
    "Record",
    "SchemaRegistry",
]
