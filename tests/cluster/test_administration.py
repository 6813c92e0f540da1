"""Administration of a running cluster: reassignment, elections, deletion, and whether a broker may be stopped."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from tests.cluster.conftest import IS_KAFKA, PARTITIONS, create_topic
from tests.cluster.load import (
    PRODUCER_SETTINGS,
    NumberedLoad,
    assert_exactly_once,
    assert_nothing_is_lost,
    numbers_of,
    read_topic,
)
from tests.cluster.znodes import ROOT, run_tool
from tests.support.cluster import Cluster

TIMEOUT_S = 30
IN_PROGRESS = "is still in progress"


def plan(tmp_path: Path, topic: str, *replicas: list[int]) -> str:
    """Return the path of a plan with the replicas of each partition."""
    path = tmp_path / "plan.json"
    partitions = [{"topic": topic, "partition": index, "replicas": it} for index, it in enumerate(replicas)]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def reassign(cluster: Cluster, topic: str, path: str) -> str:
    """Execute a plan and wait until it is complete; return what --execute prints."""
    printed = run_tool(cluster, "admin.reassign_partitions", "--execute", "--reassignment-json-file", path)
    verify = ("--verify", "--reassignment-json-file", path)
    cluster.wait_until(
        lambda: IN_PROGRESS not in run_tool(cluster, "admin.reassign_partitions", *verify), f"{topic} is reassigned"
    )
    return printed


def replicas_of(cluster: Cluster, topic: str) -> list[list[int]]:
    return [replicas for _, (_, replicas, _) in sorted(cluster.partitions(topic).items())]


def test_replication_factor_is_lowered_and_raised_under_load(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    before = replicas_of(cluster, topic)
    with NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load:
        path = plan(tmp_path, topic, *([it[0], it[1]] for it in before))
        printed = reassign(cluster, topic, path)
        assert f"Successfully started partition reassignments for {topic}-0,{topic}-1,{topic}-2" in printed
        assert replicas_of(cluster, topic) == [it[:2] for it in before]
        dropped = before[0][2]
        folder = cluster.brokers[dropped].log_dir / f"{topic}-0"
        cluster.wait_until(lambda: not folder.exists(), "the dropped replica is deleted")
        load.wait_for(50)
        # The printed plan is the way back: it is what --generate and --execute show before they change anything.
        reassign(cluster, topic, plan(tmp_path, topic, *before))
        assert replicas_of(cluster, topic) == before
        cluster.wait_until_in_sync(topic)
        load.wait_for(50)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, PARTITIONS))


def test_leader_moves_to_other_brokers(cluster: Cluster, tmp_path: Path) -> None:
    topic = create_topic(cluster, 1)
    with NumberedLoad(cluster.bootstrap, topic, 1) as load:
        (before,) = replicas_of(cluster, topic)
        reassign(cluster, topic, plan(tmp_path, topic, [before[2], before[1]]))
        assert cluster.leader(topic) in before[1:]
        load.wait_for(50)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, 1))
    listed = run_tool(cluster, "admin.reassign_partitions", "--list")
    assert listed == "No partition reassignments found.\n"


def test_preferred_leaders_are_elected(cluster: Cluster, topic: str) -> None:
    first = cluster.leader(topic)
    cluster.restart(first)
    cluster.wait_until_in_sync(topic)
    assert cluster.leader(topic) != first
    printed = run_tool(cluster, "admin.leader_election", "--election-type", "preferred", "--all-topic-partitions")
    assert re.search(rf"^Successfully completed leader election \(PREFERRED\) for partitions .*{topic}-0", printed)
    cluster.wait_until(lambda: cluster.partitions(topic)[0][0] == first, "the preferred replica leads")


def test_replicas_have_the_same_records(cluster: Cluster, topic: str) -> None:
    with NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_for(100)
    arguments = ["--broker-list", cluster.bootstrap, "--topics-include", topic, "--time", "-2"]
    arguments += ["--report-interval-ms", "50", "--max-wait-ms", "50"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "tools.monitoring.replica_verification", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as verification:
        assert verification.stdout is not None
        while "max lag is 0" not in (line := verification.stdout.readline()):
            assert verification.poll() is None
            assert "match" not in line, line
        verification.terminate()


def test_only_the_leader_is_left_and_then_the_others_are_left(cluster: Cluster) -> None:
    """Three partitions with one leader: what a producer, an operator who waits, and one who does not wait, meet."""
    leader, *others = cluster.brokers
    assignment = [[leader, *others]]
    strict = create_topic(cluster, assignment=assignment)
    kept, risked = (create_topic(cluster, assignment=assignment, min_insync_replicas="1") for _ in range(2))
    topics = (strict, kept, risked)
    with ExitStack() as loads:
        accepted, safe, replicated = (
            loads.enter_context(NumberedLoad(cluster.bootstrap, topic, 1, rate=100)) for topic in topics
        )

    cluster.kill(*others)
    cluster.wait_until(
        lambda: all(cluster.partitions(topic)[0][2] == [leader] for topic in topics), "the leader alone is in sync"
    )
    alone = cluster.brokers[leader].bootstrap
    producer = Producer({**PRODUCER_SETTINGS, "bootstrap.servers": alone, "retries": 0})
    errors: list[str] = []
    producer.produce(strict, b"-1", on_delivery=lambda error, _: errors.append(error.name()))
    producer.flush(TIMEOUT_S)
    assert errors == ["NOT_ENOUGH_REPLICAS"]
    with NumberedLoad(alone, risked, 1) as lost:
        lost.wait_for(50)

    cluster.kill(leader)
    cluster.start(*others)
    cluster.wait_until(
        lambda: all(cluster.partitions(topic)[0][0] == -1 for topic in topics), "the partitions have no leader"
    )
    assert all(cluster.partitions(topic)[0][2] == [leader] for topic in topics), "the last in-sync replica is kept"
    arguments = ("--election-type", "unclean", "--topic", risked, "--partition", "0")
    cluster.wait_until(
        lambda: "Successfully" in run_tool(cluster, "admin.leader_election", *arguments), "a replica leads"
    )
    assert cluster.leader(risked) in others

    cluster.heal(*topics)
    with NumberedLoad(cluster.bootstrap, strict, 1, first=accepted.sent) as again:
        again.wait_for(50)
    records = read_topic(cluster.bootstrap, strict, 1)
    assert_nothing_is_lost({**accepted.acknowledged, **again.acknowledged}, records)
    assert numbers_of(records) == list(range(again.sent))
    assert_exactly_once(safe, read_topic(cluster.bootstrap, kept, 1))
    records = read_topic(cluster.bootstrap, risked, 1)
    assert_nothing_is_lost(replicated.acknowledged, records)
    assert len(records[0]) == replicated.sent, "only what the old leader alone had is lost"


def test_topic_is_deleted_when_its_last_broker_returns(cluster: Cluster, topic: str) -> None:
    absent = cluster.follower(topic)
    cluster.kill(absent)
    cluster.wait_until(
        lambda: all(absent not in isr for _, _, isr in cluster.partitions(topic).values()), "the broker is gone"
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    try:
        admin.delete_topics([topic], operation_timeout=1)[topic].result(TIMEOUT_S)
    except KafkaException as error:
        assert error.args[0].name() == "REQUEST_TIMED_OUT"  # noqa: PT017 - either is right
    cluster.start(absent)
    folders = [broker.log_dir / f"{topic}-0" for broker in cluster.brokers.values()]
    cluster.wait_until(lambda: not any(folder.exists() for folder in folders), "all replicas are deleted")
    cluster.wait_until(lambda: topic not in admin.list_topics(timeout=TIMEOUT_S).topics, "the topic is gone")


def test_second_broker_of_an_id_does_not_start(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    settings = {**cluster._settings, "zookeeper.registration.wait.ms": "0"}
    second = cluster._new_broker(1, tmp_path / "second", cluster.zookeeper.connect, settings)
    with pytest.raises(RuntimeError, match=r"already registered|NodeExists"):
        second.start()
    cluster.wait_until_in_sync(topic)


def test_deleted_controller_node_is_replaced(cluster: Cluster) -> None:
    client = KazooClient(cluster.zookeeper.connect)
    client.start()
    epoch = int(client.get("/controller_epoch")[0])
    client.delete("/controller")
    cluster.wait_until(lambda: int(client.get("/controller_epoch")[0]) > epoch, "a controller was elected")
    client.stop()
    client.close()

    def is_created() -> bool:
        try:
            return bool(create_topic(cluster, 1))
        except KafkaException as error:
            # Brokers name the old controller until the new one has sent them metadata.
            assert error.args[0].name() == "NOT_CONTROLLER"  # noqa: PT017
            return False

    cluster.wait_until(is_created, "the new controller creates a topic")


def reasons_against(cluster: Cluster, broker_id: int, topic: str) -> list[str]:
    """Return the reasons of a broker against its stop that name partitions of the topic; others are other tests'."""
    _, content = cluster.health(broker_id, "safe")
    reasons: Any = content["reasons"]
    named = (it for it in reasons if any(name.startswith(f"{topic}-") for name in it.get("partitions", [])))
    return [reason["reason"] for reason in named]


@pytest.mark.skipif(IS_KAFKA, reason="Kafka has no such check")
def test_health_says_whether_a_broker_may_be_stopped(cluster: Cluster, topic: str) -> None:
    def are_all_safe() -> bool:
        return not any(reasons_against(cluster, it, topic) for it in cluster.brokers)

    cluster.wait_until(are_all_safe, "any broker may be stopped")
    follower = cluster.follower(topic)
    cluster.kill(follower)
    others = [broker_id for broker_id in cluster.brokers if broker_id != follower]
    reason = "without this broker fewer than min.insync.replicas are in sync"
    cluster.wait_until(
        lambda: all(reasons_against(cluster, it, topic) == [reason] for it in others), "no other broker may be stopped"
    )
    assert all(cluster.health(it, "ready") == (True, {"status": "UP", "reasons": []}) for it in others)
    cluster.heal(topic)
    cluster.wait_until(are_all_safe, "any broker may be stopped")
