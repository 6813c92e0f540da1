"""ACLs of topics at the target, by MirrorMaker 2's rules."""

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from spark_jobs.mirroring.acls import translated
from spark_jobs.mirroring.naming import TopicNames

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


def acl(topic: str, operation: AclOperation, permission: AclPermissionType = ALLOW) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:x", "*", operation, permission)


def test_read_stays_all_becomes_read_and_write_is_not_allowed() -> None:
    source = [
        acl("orders", AclOperation.READ),
        acl("orders", AclOperation.WRITE),
        acl("orders", AclOperation.WRITE, DENY),
        acl("bills", AclOperation.ALL),
        acl("secret", AclOperation.READ),
    ]
    names = TopicNames(".*", "secret", prefix="A.")
    assert list(translated(source, names)) == [
        acl("A.orders", AclOperation.READ),
        acl("A.orders", AclOperation.WRITE, DENY),
        acl("A.bills", AclOperation.READ),
    ]
