"""Metadata of a cluster with something of each kind, as KRaft and as ZooKeeper's tree have it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from tools.kraft import image as kraft
from tools.kraft.image import AclImage, ClusterImage, PartitionImage, ScramImage, TokenImage, TopicImage
from tools.kraft.znodes import LEVELS, Node

CLUSTER_ID = "7ym0r3ycTc-XAnwnQmXzjg"
TOPIC_ID = UUID("a52106b5-d4a4-4579-8204-295899669b57")
# The node of a topic of Kafka before 2.8.
WITHOUT_ID = b'{"version":1,"partitions":{"0":[1]}}'
RECORDED = Path(__file__).resolve().parents[2] / "fixtures" / "znodes" / "kafka-3.9.1.txt"


def full_image() -> ClusterImage:
    """Everything that a tree can hold as well."""
    partition = PartitionImage((1,), (1,), kraft.NO_LEADER, 7, 0, recovery_state=1)
    return ClusterImage(
        features=dict(LEVELS),
        topics={
            "orders": TopicImage(TOPIC_ID, {0: PartitionImage((1,), (1,), kraft.NO_LEADER, 4, 0), 1: partition}),
            "empty": TopicImage(UUID(int=77)),
        },
        configs={
            (kraft.TOPIC, "orders"): {"cleanup.policy": "compact", "retention.ms": "-1"},
            (kraft.BROKER, ""): {"log.cleaner.threads": "2"},
            (kraft.BROKER, "1"): {"max.connections": "99"},
            (kraft.CLIENT_METRICS, "all"): {"interval.ms": "60000"},
            (kraft.GROUP, "readers/of orders"): {"consumer.session.timeout.ms": "46000"},
        },
        quotas={
            frozenset({("user", None)}): {"consumer_byte_rate": 1024.0},
            frozenset({("user", "a b"), ("client-id", None)}): {
                "request_percentage": 12.5,
                "producer_byte_rate": 1e12,
            },
            frozenset({("client-id", "x")}): {"controller_mutation_rate": 3.0},
            frozenset({("client-id", "unlimited")}): {"producer_byte_rate": float(2**63)},
            frozenset({("ip", "10.0.0.1")}): {"connection_creation_rate": 5.0},
        },
        scram={
            ("a b", 1): ScramImage(b"salt", b"stored", b"server", 4096),
            ("a b", 2): ScramImage(b"pepper", b"s2", b"s3", 8192),
        },
        acls={UUID(int=5): AclImage(2, "ord", 4, "User:alice", "*", 3, 3)},
        tokens={"t0": TokenImage("User:a", "User:b", ("User:c", "User:d"), 1, 3, 2)},
        next_producer_id=5000,
    )


def recorded_tree(stage: str) -> dict[str, Node]:
    """Return the persistent nodes of Apache Kafka 3.9.1 with three brokers at a stage of the recording."""
    text = RECORDED.read_text().partition(f"## {stage}\n")[2].partition("\n## ")[0]
    nodes = {}
    for line in text.splitlines()[1:]:
        path, kind, rest = line.split(" ", 2)
        version, _, data = rest.partition(" ")
        if kind.startswith("P"):
            data = data.replace('"topic_id":"*"', '"topic_id":"pSEGtdSkRXmCBClYmmabVw"').replace(
                '"id":"*"', f'"id":"{CLUSTER_ID}"'
            )
            nodes[path] = Node(None if data == "-" else data.encode(), int(version[1:]))
    return nodes


def tree(topics: Mapping[str, bytes] = {}, **further: bytes) -> dict[str, Node]:
    """Return the nodes of a cluster with these topics, each with partition 0 led by broker 1."""
    nodes = {"/cluster/id": b'{"version":"1","id":"7ym0r3ycTc-XAnwnQmXzjg"}', "/controller_epoch": b"6"}
    for name, data in topics.items():
        nodes[f"/brokers/topics/{name}"] = data
        nodes[f"/brokers/topics/{name}/partitions/0/state"] = (
            b'{"controller_epoch":6,"leader":1,"version":1,"leader_epoch":3,"isr":[1]}'
        )
        nodes[f"/config/topics/{name}"] = b'{"version":1,"config":{}}'
    return {path: Node(data) for path, data in {**nodes, **further}.items()}
