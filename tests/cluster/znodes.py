"""What a cluster writes to ZooKeeper: steps of its life, and the nodes after each of them.

Owns: the steps, and the form in which nodes are compared: one line each, without ids, times and ports. Must not know
which server's nodes they are. `python -m tests.fixtures.record znodes` records Apache Kafka's into `FIXTURE`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
)
from kazoo.client import KazooClient

from tests.support.cluster import Cluster, NewBroker, kafka_broker
from tests.support.forked_programs import run_program

FIXTURE = Path(__file__).parents[1] / "fixtures" / "znodes" / "kafka-3.9.1.txt"
ROOT = Path(__file__).parents[2]
TOPIC = "events"
ASSIGNMENT = [[2, 3, 1], [3, 1, 2], [1, 2, 3]]
TIMEOUT_S = 30
PLAN = '{"version":1,"partitions":[{"topic":"events","partition":0,"replicas":[3,1]}]}'
_MASKED = (
    (re.compile(r'"topic_id":"[^"]*"'), '"topic_id":"*"'),
    (re.compile(r'"timestamp":"\d+"'), '"timestamp":"*"'),
    (re.compile(r'"id":"[^"]{22}"'), '"id":"*"'),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:*"),
    (re.compile(r'"(jmx_port|port)":-?\d+'), r'"\1":*'),
    # The client chooses the broker that it asks.
    (re.compile(r'"broker":\d+(?=,"block_start")'), '"broker":*'),
)
_CONFIG = re.compile(r'(?<="config":){.*(?=}$)')
"""Its keys have the order of a hash map."""


def dump(connect: str) -> list[str]:
    """Return a line for each node: path, persistent or ephemeral, data version and masked data."""
    client = KazooClient(connect)
    client.start()
    try:
        return list(_lines(client, "/"))
    finally:
        client.stop()
        client.close()


def _lines(client: KazooClient, path: str) -> Iterator[str]:
    data, stat = client.get(path)
    text = "-" if data is None else data.decode()
    for pattern, replacement in _MASKED:
        text = pattern.sub(replacement, text)
    text = _CONFIG.sub(lambda match: json.dumps(json.loads(match[0]), sort_keys=True, separators=(",", ":")), text)
    yield f"{path} {'E' if stat.ephemeralOwner else 'P'} v{stat.version} {text}".rstrip()
    for name in sorted(client.get_children(path)):
        if (path, name) != ("/", "zookeeper"):
            yield from _lines(client, f"{path.rstrip('/')}/{name}")


def steps(folder: Path, new_broker: NewBroker) -> Iterator[tuple[str, list[str]]]:
    """Run the steps with a new cluster; yield the name of each and the nodes after it."""
    cluster = Cluster(folder, new_broker=new_broker)
    cluster.zookeeper.start()
    try:
        for broker_id in (1, 2, 3):  # one after another, so that broker 1 is the controller
            broker = cluster.add_broker(broker_id)
            broker.start()
        cluster.heal()
        for name, step in STEPS.items():
            step(cluster)
            yield name, dump(cluster.zookeeper.connect)
    finally:
        cluster.stop()


def _started(cluster: Cluster) -> None:
    """Do nothing: the nodes after the start."""


def _create(cluster: Cluster) -> None:
    admin = _admin(cluster)
    topic = NewTopic(TOPIC, len(ASSIGNMENT), replica_assignment=ASSIGNMENT, config={"retention.ms": "7200000"})
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
    cluster.wait_until_in_sync(TOPIC)


def _configure(cluster: Cluster) -> None:
    for entity, setting in (
        (("--topic", TOPIC), "max.message.bytes=2000000"),
        (("--broker", "1"), "log.cleaner.threads=2"),
        (("--broker-defaults",), "message.max.bytes=1500000"),
    ):
        run_tool(cluster, "admin.configs", "--alter", *entity, "--add-config", setting)


def _add_partition(cluster: Cluster) -> None:
    admin = _admin(cluster)
    new = NewPartitions(TOPIC, 4, replica_assignment=[[2, 1, 3]])
    admin.create_partitions([new])[TOPIC].result(TIMEOUT_S)
    cluster.wait_until_in_sync(TOPIC)


def _allocate_producer_ids(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.brokers[1].bootstrap, "enable.idempotence": True})
    producer.produce(TOPIC, b"0", partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def _kill(cluster: Cluster) -> None:
    cluster.kill(3)
    cluster.wait_until(
        lambda: all(3 not in isr and leader in (1, 2) for leader, _, isr in cluster.partitions(TOPIC).values()),
        "broker 3 is in no ISR",
    )


def _return(cluster: Cluster) -> None:
    cluster.heal(TOPIC)


def _elect_preferred(cluster: Cluster) -> None:
    run_tool(cluster, "admin.leader_election", "--election-type", "preferred", "--all-topic-partitions")
    cluster.wait_until(
        lambda: all(leader == replicas[0] for leader, replicas, _ in cluster.partitions(TOPIC).values()),
        "the preferred replicas lead",
    )


def _reassign(cluster: Cluster) -> None:
    plan = cluster.folder / "plan.json"
    plan.write_text(PLAN)
    run_tool(cluster, "admin.reassign_partitions", "--execute", "--reassignment-json-file", str(plan))
    cluster.wait_until(
        lambda: set(cluster.partitions(TOPIC)[0][1]) == {1, 3} and cluster.partitions(TOPIC)[0][0] == 3,
        "the partition has its new replicas",
    )


def _delete(cluster: Cluster) -> None:
    admin = _admin(cluster)
    admin.delete_topics([TOPIC], operation_timeout=TIMEOUT_S)[TOPIC].result(TIMEOUT_S)
    client = KazooClient(cluster.zookeeper.connect)
    client.start()
    cluster.wait_until(lambda: client.exists(f"/admin/delete_topics/{TOPIC}") is None, "the topic is deleted")
    client.stop()
    client.close()


STEPS = {
    "brokers 1, 2 and 3 have started": _started,
    "a topic was created": _create,
    "configs were set": _configure,
    "a partition was added": _add_partition,
    "a producer id was asked for": _allocate_producer_ids,
    "broker 3 was killed": _kill,
    "broker 3 has returned": _return,
    "preferred leaders were elected": _elect_preferred,
    "partition 0 was reassigned": _reassign,
    "the topic was deleted": _delete,
}


def run_tool(cluster: Cluster, module: str, *arguments: str) -> str:
    """Run an administration tool; return its output. It must succeed."""
    command = ("--bootstrap-server", cluster.bootstrap, *arguments)
    done = run_program(f"tools.{module}", command, timeout_s=2 * TIMEOUT_S, folder=ROOT)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout.decode()


def text_of(found: Iterator[tuple[str, list[str]]]) -> str:
    """Return the content of the fixture."""
    return "".join(f"## {name}\n" + "\n".join(lines) + "\n" for name, lines in found)


def recorded() -> dict[str, list[str]]:
    """Return the nodes of Apache Kafka after each step."""
    sections = re.split(r"^## ", FIXTURE.read_text(), flags=re.MULTILINE)[1:]
    return {name: lines for name, *lines in (section.splitlines() for section in sections)}


def _admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def record(folder: Path) -> None:
    """Write the fixture from a cluster of Apache Kafka."""
    FIXTURE.parent.mkdir(exist_ok=True)
    FIXTURE.write_text(text_of(steps(folder, kafka_broker)))
