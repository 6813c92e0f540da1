"""Kafka Streams programs keep their results when an instance of them or a broker of a cluster is killed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Message

from tests.interop.conftest import Server
from tests.interop.streams import StreamsHost
from tests.interop.streams_results import (
    INPUTS,
    OUTPUTS,
    PROGRAMS,
    WORDS,
    Messages,
    create_topics,
    has_all,
    read,
    send,
    settings,
)
from tests.support.cluster import Cluster
from tests.support.waiting import wait_until

AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once_v2"
WORD = "municipal"
OUTPUT = "wordcount-output"
HALF = {"wordcount-input": INPUTS["wordcount-input"][:250]}
OTHER_HALF = {"wordcount-input": INPUTS["wordcount-input"][250:]}
PORTS = (1, 2)
"""Names of the two instances; nothing listens there."""


def counts_by_word(messages: Sequence[Message]) -> dict[str, list[int]]:
    """Return all counts of each word, in their order."""
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for message in messages:
        counts[message.key().decode()].append(int(message.value()))
    return dict(counts)


def has_last_counts(topic: str, messages: Messages) -> bool:
    """Return whether each word has reached the count of the whole input, or more."""
    counts = counts_by_word(messages)
    return all(max(counts.get(word, [0])) >= int(count) for word, count in WORDS.items())


def wait_for_standby(host: StreamsHost, application: str) -> tuple[int, int]:
    """Return the active and the standby instance of the word."""
    found: list[int] = []

    def has_both() -> bool:
        found[:] = host.where(application, "counts", WORD)
        return len(found) == len(PORTS)

    wait_until(has_both, "the word has a standby")
    return found[0], found[1]


@pytest.mark.parametrize("guarantee", [pytest.param(AT_LEAST_ONCE, marks=pytest.mark.soak), EXACTLY_ONCE])
def test_a_standby_takes_over_the_counts_of_a_killed_instance(guarantee: str, server: Server, tmp_path: Path) -> None:
    application, prefix, bootstrap = f"two-instances-{guarantee}", f"two-{guarantee}-", server.bootstrap
    create_topics(bootstrap, prefix)
    with ExitStack() as running:
        hosts = {port: running.enter_context(StreamsHost(tmp_path, "WordCount")) for port in PORTS}
        for port, host in hosts.items():
            own = {
                **settings(guarantee),
                "num.standby.replicas": 1,
                "application.server": f"127.0.0.1:{port}",
            }
            host.start(application, "WordCount", bootstrap, prefix, own)
        for host in hosts.values():
            host.running(application)
        send(bootstrap, prefix, HALF)
        wait_until(lambda: hosts[1].count(application, "counts", WORD) or hosts[2].count(application, "counts", WORD))
        active, standby = wait_for_standby(hosts[1], application)
        hosts[active].kill()
        send(bootstrap, prefix, OTHER_HALF)
        found = read(bootstrap, [prefix], [OUTPUT], is_enough=has_last_counts)[f"{prefix}{OUTPUT}"]
        wait_until(
            lambda: hosts[standby].where(application, "counts", WORD)[0] == standby, "the standby has become active"
        )
        counts = counts_by_word(found)
        if guarantee == EXACTLY_ONCE:
            assert counts == {word: list(range(1, int(count) + 1)) for word, count in WORDS.items()}
        assert hosts[standby].count(application, "counts", WORD) == counts[WORD][-1]
        hosts[standby].end()


@pytest.mark.soak
@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_a_cluster_that_loses_a_broker_gives_the_same_results(guarantee: str, tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster") as cluster, StreamsHost(tmp_path, *PROGRAMS) as host:
        create_topics(cluster.bootstrap, "", replicas=3)
        send(cluster.bootstrap, "", {**INPUTS, **HALF})
        own = {**settings(guarantee), "replication.factor": 3}
        for program in PROGRAMS:
            host.start(program, program, cluster.bootstrap, "", own)
        host.running(*PROGRAMS)
        cluster.kill(cluster.leader(OUTPUT))
        send(cluster.bootstrap, "", OTHER_HALF)
        found = read(cluster.bootstrap, [""], OUTPUTS, is_enough=has_all)
        for topic, output in OUTPUTS.items():
            if guarantee == EXACTLY_ONCE:
                assert len(found[topic]) == output.records, topic
                output.check(found[topic])
        host.end()
