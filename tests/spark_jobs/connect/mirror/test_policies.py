"""Names of topics at the target, the topics of MirrorMaker 2 itself, and loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.mirror import policies
from spark_jobs.connect.mirror.policies import DefaultReplicationPolicy, replication_policy
from tests.spark_jobs.connect.mirror.recorded import RECORDED


class Suffix(DefaultReplicationPolicy):
    """A plug-in."""

    def remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{topic}.of.{source_alias}"


@pytest.mark.parametrize("row", RECORDED["policies"], ids=lambda row: f"{row['class'][-25:]}-{row['config']}")
def test_names_are_those_of_kafka(row: Any) -> None:
    policy = replication_policy({"replication.policy.class": row["class"], **row["config"]})
    assert policy.offset_syncs_topic("A") == row["offset_syncs"]
    assert policy.checkpoints_topic("A") == row["checkpoints"]
    for each in row["topics"]:
        topic = each["topic"]
        assert {
            "topic": topic,
            "remote": policy.remote_topic("A", topic),
            "source": policy.source_of(topic),
            "upstream": policy.upstream_topic(topic),
            "original": policies.original_topic(policy, topic),
            "heartbeats": policies.is_heartbeats_topic(policy, topic),
            "checkpoints": policy.is_checkpoints_topic(topic),
            "internal": policy.is_internal(topic),
        } == each


@pytest.mark.parametrize(
    ("config", "topic", "is_cycle"),
    [
        ({}, "orders", False),
        ({}, "B.orders", True),
        ({}, "C.orders", False),
        ({}, "C.B.orders", True),
        ({}, "C.D.E.B.orders", True),
        ({"replication.policy.separator": "_"}, "C_B_orders", True),
        ({"replication.policy.separator": "_"}, "B.orders", False),
        ({"replication.policy.class": "IdentityReplicationPolicy", "source.cluster.alias": "A"}, "B.orders", False),
        ({"replication.policy.class": "IdentityReplicationPolicy", "source.cluster.alias": "A"}, "B.heartbeats", True),
    ],
)
def test_a_topic_that_has_been_at_the_target_is_a_cycle(config: Mapping[str, str], topic: str, is_cycle: bool) -> None:
    assert policies.is_cycle(replication_policy(config), topic, "B") is is_cycle


def test_a_python_class_may_be_the_policy() -> None:
    policy = replication_policy({"replication.policy.class": f"{__name__}:Suffix"})
    assert policy.remote_topic("A", "orders") == "orders.of.A"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"replication.policy.class": "com.example.Mine"}, "Unknown replication.policy.class com.example.Mine"),
        ({"replication.policy.class": "no.such:Mine"}, "Cannot load the replication.policy.class no.such:Mine"),
        ({"replication.policy.separator": ""}, "replication.policy.separator"),
    ],
)
def test_an_unknown_policy_is_refused_by_name(config: Mapping[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        replication_policy(config)
