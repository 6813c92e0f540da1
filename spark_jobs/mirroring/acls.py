"""Copies the ACLs of topics to the target, with MirrorMaker 2's rules.

Copied are ACLs of single topics that are mirrored, under the topic's name at the target. What is removed at the source
stays at the target. Must not know which operations are copied (`spark_jobs.connect.mirror.acls`).
"""

import logging
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from spark_jobs.connect.mirror.acls import mirrored_operation
from spark_jobs.mirroring.naming import TopicNames
from spark_jobs.skeleton.errors import JobError

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 30
_OF_TOPICS = AclBindingFilter(
    ResourceType.TOPIC, None, ResourcePatternType.LITERAL, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def translated(acls: Iterable[AclBinding], names: TopicNames) -> Iterator[AclBinding]:
    """Yield the ACLs of the target."""
    for acl in acls:
        operation = mirrored_operation(acl.operation.value, acl.permission_type.value)
        if operation is not None and names.includes(acl.name):
            yield AclBinding(
                acl.restype, names.target(acl.name), acl.resource_pattern_type, acl.principal, acl.host,
                AclOperation(operation), acl.permission_type,
            )  # fmt: skip


def sync_acls(source: Mapping[str, str], target: Mapping[str, str], names: TopicNames) -> int:
    """Add the ACLs that the target lacks; return their number. Raises JobError if a cluster refuses."""
    clients = {"source": AdminClient(dict(source)), "target": AdminClient(dict(target))}
    found: dict[str, set[AclBinding]] = {}
    for cluster, client in clients.items():
        try:
            found[cluster] = set(client.describe_acls(_OF_TOPICS, request_timeout=_TIMEOUT_S).result())
        except KafkaException as error:
            raise JobError(f"--sync-acls: the {cluster} does not list its ACLs: {error.args[0].str()}") from error
    missing = sorted(set(translated(found["source"], names)) - found["target"])
    for acl, future in clients["target"].create_acls(missing).items() if missing else ():
        try:
            future.result(_TIMEOUT_S)
        except KafkaException as error:
            raise JobError(f"--sync-acls: the target refuses {acl}: {error.args[0].str()}") from error
        _LOG.info("%s has an ACL of %s now, like the source", acl.name, acl.principal)
    return len(missing)
