"""The metadata of one cluster as KRaft has it: replayed from records, and written as the records of a snapshot.

Owns what each record changes, and which records a snapshot has. Must not know znodes or files. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from protocol.errors import Malformed
from tools.kraft import metadata_records as layouts
from tools.kraft.metadata_log import VersionedRecord

K = TypeVar("K")
V = TypeVar("V")

NO_LEADER: Final = -1
_UNCHANGED_LEADER: Final = -2
_UNCHANGED_RECOVERY: Final = -1
METADATA_VERSION: Final = "metadata.version"

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""The types of entities that have configurations. The name of the default broker is empty."""


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition; ids are those of brokers."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovery_state: int = 0
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    directories: tuple[UUID, ...] = ()
    """The directory of each replica."""
    eligible: tuple[int, ...] = ()
    """Replicas that left the ISR with all that was committed, so that one of them may lead without loss (KIP-966)."""


@dataclass(slots=True)
class TopicImage:
    topic_id: UUID
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


class ScramImage(NamedTuple):
    """What is stored of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class AclImage(NamedTuple):
    """An ACL, with Kafka's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class TokenImage(NamedTuple):
    """A delegation token without its HMAC; principals are written `Type:name`."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    ends_ms: int
    expires_ms: int


QuotaEntity = frozenset[tuple[str, str | None]]
"""Types with names, which records have in any order; the name None is the default of its type."""


@dataclass(slots=True)
class ClusterImage:
    """All metadata that outlives the processes of a cluster."""

    features: dict[str, int] = field(default_factory=dict)
    topics: dict[str, TopicImage] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    scram: dict[tuple[str, int], ScramImage] = field(default_factory=dict)
    """By user and number of the mechanism."""
    acls: dict[UUID, AclImage] = field(default_factory=dict)
    tokens: dict[str, TokenImage] = field(default_factory=dict)
    next_producer_id: int = 0
    brokers: set[int] = field(default_factory=set)
    """The registered ones. A snapshot that Milena writes has none: each broker registers when it starts."""

    @property
    def with_replicas(self) -> set[int]:
        """The ids of the nodes that have replicas."""
        return {
            replica
            for topic in self.topics.values()
            for partition in topic.partitions.values()
            for replica in partition.replicas
        }


# -- to records ----------------------------------------------------------------------------------------------------


def records_of(image: ClusterImage) -> Iterator[VersionedRecord]:
    """Yield the records of a snapshot, in an order in which each one refers to earlier ones only.

    Their versions are those of metadata.version 4.0-IV3, which every Kafka 4.x reads.
    """
    levels = sorted(image.features.items(), key=lambda feature: (feature[0] != METADATA_VERSION, feature))
    for name, level in levels:
        yield VersionedRecord(12, 0, layouts.FeatureLevelRecord(name=name, feature_level=level))
    for name, topic in sorted(image.topics.items()):
        yield VersionedRecord(2, 0, layouts.TopicRecord(name=name, topic_id=topic.topic_id))
        for number, partition in sorted(topic.partitions.items()):
            yield VersionedRecord(3, 1, _partition_record(topic.topic_id, number, partition))
    for (entity_type, name), values in sorted(image.configs.items()):
        for key, value in sorted(values.items()):
            config = layouts.ConfigRecord(resource_type=entity_type, resource_name=name, name=key, value=value)
            yield VersionedRecord(4, 0, config)
    yield from _quota_records(image)
    if image.next_producer_id:
        ids = layouts.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
        yield VersionedRecord(15, 0, ids)
    for acl_id, acl in image.acls.items():
        yield VersionedRecord(18, 0, layouts.AccessControlEntryRecord(id=acl_id, **acl._asdict()))
    for (user, mechanism), credential in sorted(image.scram.items()):
        scram = layouts.UserScramCredentialRecord(name=user, mechanism=mechanism, **credential._asdict())
        yield VersionedRecord(11, 0, scram)
    for token_id, token in sorted(image.tokens.items()):
        yield VersionedRecord(10, 0, _token_record(token_id, token))


def _partition_record(topic_id: UUID, number: int, partition: PartitionImage) -> layouts.PartitionRecord:
    return layouts.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
    )


def _quota_records(image: ClusterImage) -> Iterator[VersionedRecord]:
    for entity, values in image.quotas.items():
        parts = [
            layouts.EntityData(entity_type=entity_type, entity_name=name)
            for entity_type, name in sorted(entity, key=itemgetter(0))
        ]
        for key, value in sorted(values.items()):
            yield VersionedRecord(14, 0, layouts.ClientQuotaRecord(entity=parts, key=key, value=value, remove=False))


def _token_record(token_id: str, token: TokenImage) -> layouts.DelegationTokenRecord:
    return layouts.DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issued_ms,
        max_timestamp=token.ends_ms,
        expiration_timestamp=token.expires_ms,
        token_id=token_id,
    )


# -- from records --------------------------------------------------------------------------------------------------


class Replay:
    """Applies records in the order of the log; those of an aborted metadata transaction have no effect (KIP-868)."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self._names: dict[UUID, str] = {}
        self._in_transaction: list[object] | None = None

    def apply(self, record: object) -> None:
        """Raises Malformed if the record refers to a topic or partition that does not exist."""
        match record:
            case layouts.BeginTransactionRecord():
                self._in_transaction = []
            case layouts.EndTransactionRecord():
                pending, self._in_transaction = self._in_transaction or [], None
                for each in pending:
                    self._change(each)
            case layouts.AbortTransactionRecord():
                self._in_transaction = None
            case _ if self._in_transaction is not None:
                self._in_transaction.append(record)
            case _:
                self._change(record)

    def _change(self, record: object) -> None:
        image = self.image
        match record:
            case layouts.TopicRecord(name=name, topic_id=topic_id):
                self._names[topic_id] = name
                image.topics[name] = TopicImage(topic_id)
            case layouts.RemoveTopicRecord(topic_id=topic_id):
                name = self._name(topic_id)
                del self._names[topic_id], image.topics[name]
                image.configs.pop((TOPIC, name), None)
            case layouts.PartitionRecord():
                topic = image.topics[self._name(record.topic_id)]
                topic.partitions[record.partition_id] = _partition_image(record)
            case layouts.PartitionChangeRecord():
                name = self._name(record.topic_id)
                partitions = image.topics[name].partitions
                if record.partition_id not in partitions:
                    raise Malformed(f"change of partition {name}-{record.partition_id}, which does not exist")
                partitions[record.partition_id] = _changed(partitions[record.partition_id], record)
            case layouts.ClearElrRecord(topic_name=name):
                for topic in image.topics.values() if not name else filter(None, [image.topics.get(name)]):
                    for number, partition in topic.partitions.items():
                        topic.partitions[number] = replace(partition, eligible=())
            case layouts.FeatureLevelRecord(name=name, feature_level=level):
                image.features[name] = level
                if not level:
                    del image.features[name]
            case layouts.RegisterBrokerRecord(broker_id=broker_id):
                image.brokers.add(broker_id)
            case layouts.UnregisterBrokerRecord(broker_id=broker_id):
                image.brokers.discard(broker_id)
            case layouts.ProducerIdsRecord(next_producer_id=first):
                image.next_producer_id = first
            case _:
                self._change_settings(record)

    def _change_settings(self, record: object) -> None:
        image = self.image
        match record:
            case layouts.ConfigRecord():
                _put(image.configs, (record.resource_type, record.resource_name), record.name, record.value)
            case layouts.ClientQuotaRecord():
                entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
                _put(image.quotas, entity, record.key, None if record.remove else record.value)
            case layouts.UserScramCredentialRecord():
                credential = ScramImage(record.salt, record.stored_key, record.server_key, record.iterations)
                image.scram[record.name, record.mechanism] = credential
            case layouts.RemoveUserScramCredentialRecord():
                image.scram.pop((record.name, record.mechanism), None)
            case layouts.AccessControlEntryRecord():
                image.acls[record.id] = AclImage(*(getattr(record, name) for name in AclImage._fields))
            case layouts.RemoveAccessControlEntryRecord():
                image.acls.pop(record.id, None)
            case layouts.DelegationTokenRecord():
                image.tokens[record.token_id] = TokenImage(
                    record.owner,
                    record.requester,
                    tuple(record.renewers),
                    record.issue_timestamp,
                    record.max_timestamp,
                    record.expiration_timestamp,
                )
            case layouts.RemoveDelegationTokenRecord():
                image.tokens.pop(record.token_id, None)
            case _ if type(record) in _WITHOUT_LASTING_EFFECT:
                pass
            case _:
                raise Malformed(f"{type(record).__name__} cannot be applied")

    def _name(self, topic_id: UUID) -> str:
        name = self._names.get(topic_id)
        if name is None:
            raise Malformed(f"topic id {topic_id}, which no topic has")
        return name


_WITHOUT_LASTING_EFFECT: Final = frozenset(
    {
        layouts.FenceBrokerRecord,
        layouts.UnfenceBrokerRecord,
        layouts.BrokerRegistrationChangeRecord,
        layouts.RegisterControllerRecord,
        layouts.NoOpRecord,
        layouts.ZkMigrationStateRecord,
    }
)
"""Records about running processes, and a finished migration."""


def _put(settings: dict[K, dict[str, V]], entity: K, key: str, value: V | None) -> None:
    """Set one value of an entity; None removes it."""
    values = settings.setdefault(entity, {})
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
    if not values:
        del settings[entity]


def _partition_image(record: layouts.PartitionRecord) -> PartitionImage:
    return PartitionImage(
        tuple(record.replicas),
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.leader_recovery_state,
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        tuple(record.directories),
        tuple(record.eligible_leader_replicas or ()),
    )


def _changed(partition: PartitionImage, change: layouts.PartitionChangeRecord) -> PartitionImage:
    """Return a partition after a change: each one raises the partition epoch, one with a leader also its epoch."""

    def given(values: list[int] | None, before: tuple[int, ...]) -> tuple[int, ...]:
        return before if values is None else tuple(values)

    has_leader = change.leader != _UNCHANGED_LEADER
    recovery = change.leader_recovery_state
    return replace(
        partition,
        replicas=given(change.replicas, partition.replicas),
        isr=given(change.isr, partition.isr),
        leader=change.leader if has_leader else partition.leader,
        leader_epoch=partition.leader_epoch + has_leader,
        partition_epoch=partition.partition_epoch + 1,
        recovery_state=partition.recovery_state if recovery == _UNCHANGED_RECOVERY else recovery,
        removing=given(change.removing_replicas, partition.removing),
        adding=given(change.adding_replicas, partition.adding),
        directories=partition.directories if change.directories is None else tuple(change.directories),
        eligible=given(change.eligible_leader_replicas, partition.eligible),
    )


def replayed(records: Iterable[object]) -> ClusterImage:
    """Return the metadata that these records make. Raises Malformed."""
    replay = Replay()
    for record in records:
        replay.apply(record)
    return replay.image
