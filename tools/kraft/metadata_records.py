"""The records of KRaft's metadata log and of its snapshots, as Apache Kafka 3.9 and 4.x write them.

Owns their layouts. Milena stores metadata in ZooKeeper's tree or in the embedded store; `metadata-copy` converts it,
and `kafka-dump-log` prints these records. Must not know what a record means (`tools.kraft.image`).
"""

from collections.abc import Mapping

from protocol.schema import (
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    since,
    stored,
    string,
    struct,
    uint16,
    uuid,
)


@struct
class BrokerEndpoint:
    name: string
    host: string
    port: uint16
    security_protocol: int16


@struct
class BrokerFeature:
    name: string
    min_supported_version: int16
    max_supported_version: int16


@stored(versions=range(0, 4), flexible=0)
class RegisterBrokerRecord:
    broker_id: int32
    is_migrating_zk_broker: boolean = since(2, default=False)
    incarnation_id: uuid
    broker_epoch: int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: string | None
    fenced: boolean
    in_controlled_shutdown: boolean = since(1, default=False)
    log_dirs: list[uuid] = since(3, tag=0, default=[])


@stored(versions=range(0, 1), flexible=0)
class UnregisterBrokerRecord:
    broker_id: int32
    broker_epoch: int64


@stored(versions=range(0, 1), flexible=0)
class TopicRecord:
    name: string
    topic_id: uuid


@stored(versions=range(0, 3), flexible=0)
class PartitionRecord:
    partition_id: int32
    topic_id: uuid
    replicas: list[int32]
    isr: list[int32]
    removing_replicas: list[int32]
    adding_replicas: list[int32]
    leader: int32
    leader_recovery_state: int8 = since(0, tag=0, default=0)
    leader_epoch: int32
    partition_epoch: int32
    directories: list[uuid] = since(1, default=[])
    eligible_leader_replicas: list[int32] | None = since(2, tag=1, default=None)
    last_known_elr: list[int32] | None = since(2, tag=2, default=None)


@stored(versions=range(0, 1), flexible=0)
class ConfigRecord:
    resource_type: int8
    resource_name: string
    name: string
    value: string | None


@stored(versions=range(0, 3), flexible=0)
class PartitionChangeRecord:
    partition_id: int32
    topic_id: uuid
    isr: list[int32] | None = since(0, tag=0, default=None)
    leader: int32 = since(0, tag=1, default=-2)
    replicas: list[int32] | None = since(0, tag=2, default=None)
    removing_replicas: list[int32] | None = since(0, tag=3, default=None)
    adding_replicas: list[int32] | None = since(0, tag=4, default=None)
    leader_recovery_state: int8 = since(0, tag=5, default=-1)
    directories: list[uuid] | None = since(1, tag=8, default=None)
    eligible_leader_replicas: list[int32] | None = since(2, tag=6, default=None)
    last_known_elr: list[int32] | None = since(2, tag=7, default=None)


@stored(versions=range(0, 1), flexible=0)
class FenceBrokerRecord:
    id: int32
    epoch: int64


@stored(versions=range(0, 1), flexible=0)
class UnfenceBrokerRecord:
    id: int32
    epoch: int64


@stored(versions=range(0, 1), flexible=0)
class RemoveTopicRecord:
    topic_id: uuid


@stored(versions=range(0, 1), flexible=0)
class DelegationTokenRecord:
    owner: string
    requester: string
    renewers: list[string]
    issue_timestamp: int64
    max_timestamp: int64
    expiration_timestamp: int64
    token_id: string


@stored(versions=range(0, 1), flexible=0)
class UserScramCredentialRecord:
    name: string
    mechanism: int8
    salt: bytes_
    stored_key: bytes_
    server_key: bytes_
    iterations: int32


@stored(versions=range(0, 1), flexible=0)
class FeatureLevelRecord:
    name: string
    feature_level: int16


@struct
class EntityData:
    entity_type: string
    entity_name: string | None


@stored(versions=range(0, 1), flexible=0)
class ClientQuotaRecord:
    entity: list[EntityData]
    key: string
    value: float64
    remove: boolean


@stored(versions=range(0, 1), flexible=0)
class ProducerIdsRecord:
    broker_id: int32
    broker_epoch: int64
    next_producer_id: int64


@stored(versions=range(0, 3), flexible=0)
class BrokerRegistrationChangeRecord:
    broker_id: int32
    broker_epoch: int64
    fenced: int8 = since(0, tag=0, default=0)
    in_controlled_shutdown: int8 = since(1, tag=1, default=0)
    log_dirs: list[uuid] = since(2, tag=2, default=[])


@stored(versions=range(0, 1), flexible=0)
class AccessControlEntryRecord:
    id: uuid
    resource_type: int8
    resource_name: string
    pattern_type: int8
    principal: string
    host: string
    operation: int8
    permission_type: int8


@stored(versions=range(0, 1), flexible=0)
class RemoveAccessControlEntryRecord:
    id: uuid


@stored(versions=range(0, 1), flexible=0)
class NoOpRecord:
    pass


@stored(versions=range(0, 1), flexible=0)
class ZkMigrationStateRecord:
    zk_migration_state: int8


@stored(versions=range(0, 1), flexible=0)
class RemoveUserScramCredentialRecord:
    name: string
    mechanism: int8


@stored(versions=range(0, 1), flexible=0)
class BeginTransactionRecord:
    name: string | None = since(0, tag=0, default=None)


@stored(versions=range(0, 1), flexible=0)
class EndTransactionRecord:
    pass


@stored(versions=range(0, 1), flexible=0)
class AbortTransactionRecord:
    reason: string | None = since(0, tag=0, default=None)


@stored(versions=range(0, 1), flexible=0)
class RemoveDelegationTokenRecord:
    token_id: string


@stored(versions=range(0, 1), flexible=0)
class ClearElrRecord:
    topic_name: string


@struct
class ControllerEndpoint:
    name: string
    host: string
    port: uint16
    security_protocol: int16


@struct
class ControllerFeature:
    name: string
    min_supported_version: int16
    max_supported_version: int16


@stored(versions=range(0, 1), flexible=0)
class RegisterControllerRecord:
    controller_id: int32
    incarnation_id: uuid
    zk_migration_ready: boolean
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


@stored(versions=range(0, 1), flexible=0)
class SnapshotHeaderRecord:
    version: int16
    last_contained_log_timestamp: int64


@stored(versions=range(0, 1), flexible=0)
class SnapshotFooterRecord:
    version: int16


@stored(versions=range(0, 1), flexible=0)
class KRaftVersionRecord:
    version: int16
    k_raft_version: int16


@struct
class VoterEndpoint:
    name: string
    host: string
    port: uint16


@struct
class KRaftVersionFeature:
    min_supported_version: int16
    max_supported_version: int16


@struct
class Voter:
    voter_id: int32
    voter_directory_id: uuid
    endpoints: list[VoterEndpoint]
    k_raft_version_feature: KRaftVersionFeature


@stored(versions=range(0, 1), flexible=0)
class VotersRecord:
    version: int16
    voters: list[Voter]


METADATA_RECORDS: Mapping[int, type] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
}
"""The class of each type in the metadata log of Kafka 3.9."""

NEWEST_METADATA_RECORDS: Mapping[int, type] = {**METADATA_RECORDS, 28: ClearElrRecord}
"""The class of each type in the metadata log of Kafka 4.x. The layouts of the earlier ones are unchanged."""

CONTROL_RECORDS: Mapping[int, tuple[str, type]] = {
    3: ("SnapshotHeader", SnapshotHeaderRecord),
    4: ("SnapshotFooter", SnapshotFooterRecord),
    5: ("KRaftVersion", KRaftVersionRecord),
    6: ("KRaftVoters", VotersRecord),
}
"""By type of control record: its printed name, and the class of its value."""
