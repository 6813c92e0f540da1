"""Topics at the target: their settings and ACLs follow those at the source."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourcePatternType,
    ResourceType,
)

from protocol.errors import ErrorCode
from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.mirror.cluster import Acl, Cluster, Failure
from spark_jobs.connect.mirror.connector_settings import SOURCE_DEFINITION, ConnectorSettings
from spark_jobs.connect.mirror.target_topics import TargetTopics
from tests.spark_jobs.connect.mirror.flows import DEADLINE_S, Flow, create_topic

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
OPEN: list[Cluster] = []


def topics_of(flow: Flow, **settings: object) -> TargetTopics:
    """Return the topics of a flow, after the first comparison."""
    found = ConnectorSettings(SOURCE_DEFINITION, flow.config(**settings))
    clusters = [Cluster(found.alias(each), found.admin(each), 30_000) for each in ("source", "target")]
    OPEN.extend(clusters)
    topics = TargetTopics(found, *clusters)
    topics.refresh()
    return topics


@pytest.fixture(autouse=True)
def _close_clusters() -> object:
    yield
    while OPEN:
        OPEN.pop().close()


def own_config(bootstrap: str, topic: str) -> dict[str, str | None]:
    """Return the settings that a topic has itself."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    return {
        name: entry.value for name, entry in found.items() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }


def set_config(bootstrap: str, topic: str, config: Mapping[str, str | None]) -> None:
    """Set settings, remove those that are None."""
    entries = [
        ConfigEntry(
            name, value, incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        )
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def test_a_new_topic_has_the_settings_of_the_source_without_those_of_its_cluster(flow: Flow) -> None:
    topic = flow.create_topic("orders", retention_ms="1000", min_insync_replicas="1")
    topics_of(flow)
    assert own_config(flow.target, flow.remote(topic)) == {"retention.ms": "1000"}


def test_settings_that_change_at_the_source_change_at_the_target(flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
    topic = flow.create_topic("orders", retention_ms="1000", segment_bytes="2000")
    topics = topics_of(flow)
    set_config(flow.source, topic, {"retention.ms": "5000", "segment.bytes": None, "cleanup.policy": "compact"})
    set_config(flow.target, flow.remote(topic), {"min.insync.replicas": "1"})
    topics.sync_configs()
    wanted = {"retention.ms": "5000", "cleanup.policy": "compact", "min.insync.replicas": "1"}
    assert own_config(flow.target, flow.remote(topic)) == wanted
    caplog.clear()  # an earlier test may have set the level
    with caplog.at_level(logging.INFO):
        topics.sync_configs()
    assert "were changed" not in caplog.text, "equal settings are left alone"


def test_settings_may_be_excluded_by_name_and_pattern(flow: Flow) -> None:
    topic = flow.create_topic("orders", retention_ms="1000", segment_bytes="2000", min_insync_replicas="1")
    topics_of(flow, config_properties_exclude="segment.*, retention\\.ms")
    assert own_config(flow.target, flow.remote(topic)) == {"min.insync.replicas": "1"}


def test_defaults_of_the_source_are_set_at_the_target_if_they_are_to_be_used(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    topics = topics_of(flow, use_defaults_from="source")
    assert own_config(flow.target, flow.remote(topic))["retention.ms"] == "604800000"
    set_config(flow.target, flow.remote(topic), {"retention.ms": "1"})
    topics.sync_configs()
    assert own_config(flow.target, flow.remote(topic))["retention.ms"] == "604800000"


def test_a_topic_that_the_target_refuses_is_reported_and_others_are_created(
    flow: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = flow.create_topic("a"), flow.create_topic("b")
    create_topic(flow.target, flow.remote(first))
    topics_of(flow, replication_factor=3)
    assert f"topic {flow.remote(second)} cannot be created: INVALID_REPLICATION_FACTOR" in caplog.text
    assert flow.remote(first) not in caplog.text


def acl(topic: str, operation: AclOperation, permission: AclPermissionType = ALLOW) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:x", "*", operation, permission)


def acls(bootstrap: str, topic: str) -> set[tuple[AclOperation, AclPermissionType]]:
    wanted = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_acls(wanted).result(DEADLINE_S)
    return {(each.operation, each.permission_type) for each in found}


def create_acls(bootstrap: str, *bindings: AclBinding) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_acls(list(bindings)).values():
        future.result(DEADLINE_S)


def delete_acl(bootstrap: str, binding: AclBinding) -> None:
    wanted = AclBindingFilter(
        binding.restype, binding.name, binding.resource_pattern_type, binding.principal, binding.host,
        binding.operation, binding.permission_type,
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.delete_acls([wanted]).values()
    future.result(DEADLINE_S)


def test_acls_are_copied_without_permission_to_write(flow: Flow) -> None:
    topic, other = flow.create_topic("orders"), flow.create_topic("bills")
    create_acls(
        flow.source,
        acl(topic, AclOperation.READ),
        acl(topic, AclOperation.WRITE),
        acl(topic, AclOperation.WRITE, DENY),
        acl(other, AclOperation.ALL),
        acl("elsewhere", AclOperation.READ),
    )
    topics_of(flow).sync_acls()
    assert acls(flow.target, flow.remote(topic)) == {(AclOperation.READ, ALLOW), (AclOperation.WRITE, DENY)}
    assert acls(flow.target, flow.remote(other)) == {(AclOperation.READ, ALLOW)}
    assert acls(flow.target, flow.remote("elsewhere")) == set()


def test_an_acl_that_is_removed_at_the_source_is_removed_at_the_target_and_others_stay(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    create_acls(flow.source, acl(topic, AclOperation.READ), acl(topic, AclOperation.DESCRIBE))
    create_acls(flow.target, acl(flow.remote(topic), AclOperation.DELETE))
    topics = topics_of(flow)
    topics.sync_acls()
    delete_acl(flow.source, acl(topic, AclOperation.READ))
    topics.sync_acls()
    assert acls(flow.target, flow.remote(topic)) == {(AclOperation.DESCRIBE, ALLOW), (AclOperation.DELETE, ALLOW)}


class Clusters:
    """A cluster that fails to delete ACLs, or has no authorizer."""

    def __init__(self, alias: str, found: set[Acl] | None) -> None:
        self.alias = alias
        self.found = found
        self.is_down = False
        self.refused: Failure | None = None

    def topic_acls(self) -> set[Acl] | None:
        return None if self.found is None else set(self.found)

    def create_acls(self, created: list[Acl]) -> dict[Acl, object]:
        assert self.found is not None
        if self.refused is not None:
            return dict.fromkeys(created, self.refused)
        self.found |= set(created)
        return {}

    def delete_acls(self, deleted: list[Acl]) -> dict[Acl, object]:
        if self.is_down:
            raise ConnectError("down")
        assert self.found is not None
        self.found -= set(deleted)
        return {}


def compared(source: Clusters, target: Clusters) -> TargetTopics:
    config = {"source.cluster.alias": "A", "target.cluster.alias": "B"}
    return TargetTopics(ConnectorSettings(SOURCE_DEFINITION, config), source, target)  # type: ignore[arg-type]


def test_topics_of_mirrors_are_not_mirrored_whatever_is_selected() -> None:
    """Nor back to where they come from."""
    config = {"source.cluster.alias": "A", "target.cluster.alias": "B", "topics": ".*", "topics.exclude": "none"}
    found = ConnectorSettings(SOURCE_DEFINITION, config)
    topics = TargetTopics(found, Clusters("A", None), Clusters("B", None))  # type: ignore[arg-type]
    names = ("orders", "C.orders", "heartbeats", "none", "B.orders", "mm2-offset-syncs.B.internal")
    assert [name for name in names if topics.is_mirrored(name)] == ["orders", "C.orders", "heartbeats"]


def test_an_acl_that_cannot_be_created_is_named(caplog: pytest.LogCaptureFixture) -> None:
    wanted = Acl("t", "User:x", "*", 3, 3)
    target = Clusters("B", set())
    target.refused = Failure(ErrorCode.INVALID_REQUEST, "no such principal")
    compared(Clusters("A", {wanted}), target).sync_acls()
    assert "topic A.t gets no ACL of User:x: no such principal" in caplog.text


def test_an_acl_whose_removal_fails_is_removed_later() -> None:
    source, target = Clusters("A", {Acl("t", "User:x", "*", 3, 3)}), Clusters("B", set())
    topics = compared(source, target)
    topics.sync_acls()
    source.found, target.is_down = set(), True
    with pytest.raises(ConnectError):
        topics.sync_acls()
    target.is_down = False
    topics.sync_acls()
    assert target.found == set()


def test_a_source_without_authorizer_changes_no_acls_and_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    source, target = Clusters("A", {Acl("t", "User:x", "*", 3, 3)}), Clusters("B", set())
    topics = compared(source, target)
    topics.sync_acls()
    source.found = None
    with caplog.at_level(logging.INFO):
        topics.sync_acls()
        topics.sync_acls()
    assert caplog.text.count("A has no authorizer") == 1
    assert target.found == {Acl("A.t", "User:x", "*", 3, 3)}


def test_a_target_without_authorizer_is_named() -> None:
    with pytest.raises(ConnectError, match=r"B has no authorizer: set sync\.topic\.acls\.enabled=false"):
        compared(Clusters("A", set()), Clusters("B", None)).sync_acls()
