"""The API versions that earlier releases of Kafka advertised, from 0.8.2 to 3.9.

Owns these facts. Kafka before 0.10 advertised nothing, so its rows are what it served. The lowest version of each API
was 0, except that of ControlledShutdown before 2.2. Must not know which code limits versions.
"""

from collections.abc import Mapping
from types import MappingProxyType

from protocol.api_key import ApiKey

RELEASES = (
    "0.8.2", "0.9", "0.10.0", "0.10.1", "0.10.2", "0.11", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5",
    "2.6", "2.7", "2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9",
)  # fmt: skip

_NEWEST: Mapping[ApiKey, str] = MappingProxyType(
    {
        ApiKey.PRODUCE: "0.8.2:0 0.9:1 0.10.0:2 0.11:3 1.0:5 2.0:6 2.1:7 2.4:8 2.8:9 3.7:10 3.8:11",
        ApiKey.FETCH: "0.8.2:0 0.9:1 0.10.0:2 0.10.1:3 0.11:5 1.0:6 1.1:7 2.0:8 "
        "2.1:10 2.3:11 2.7:12 3.1:13 3.5:15 3.7:16 3.9:17",
        ApiKey.LIST_OFFSETS: "0.8.2:0 0.10.1:1 0.11:2 2.0:3 2.1:4 2.2:5 2.8:6 3.0:7 3.5:8 3.9:9",
        ApiKey.METADATA: "0.8.2:0 0.10.0:1 0.10.1:2 0.11:4 1.0:5 2.0:6 2.1:7 2.3:8 2.4:9 2.8:11 3.1:12",
        ApiKey.LEADER_AND_ISR: "0.10.0:0 1.0:1 2.2:2 2.4:4 2.8:5 3.2:6 3.4:7",
        ApiKey.STOP_REPLICA: "0.10.0:0 2.2:1 2.4:2 2.6:3 3.4:4",
        ApiKey.UPDATE_METADATA: "0.10.0:2 0.10.2:3 1.0:4 2.2:5 2.4:6 2.8:7 3.4:8",
        ApiKey.CONTROLLED_SHUTDOWN: "0.10.0:1 2.2:2 2.4:3",
        ApiKey.OFFSET_COMMIT: "0.8.2:1 0.9:2 0.11:3 2.0:4 2.1:6 2.3:7 2.4:8 3.7:9",
        ApiKey.OFFSET_FETCH: "0.8.2:1 0.10.2:2 0.11:3 2.0:4 2.1:5 2.4:6 2.5:7 3.0:8 3.7:9",
        ApiKey.FIND_COORDINATOR: "0.8.2:0 0.11:1 2.0:2 2.4:3 3.0:4 3.8:5 3.9:6",
        ApiKey.JOIN_GROUP: "0.9:0 0.10.1:1 0.11:2 2.0:3 2.2:4 2.3:5 2.4:6 2.5:7 3.2:9",
        ApiKey.HEARTBEAT: "0.9:0 0.11:1 2.0:2 2.3:3 2.4:4",
        ApiKey.LEAVE_GROUP: "0.9:0 0.11:1 2.0:2 2.4:4 3.2:5",
        ApiKey.SYNC_GROUP: "0.9:0 0.11:1 2.0:2 2.3:3 2.4:4 2.5:5",
        ApiKey.DESCRIBE_GROUPS: "0.9:0 0.11:1 2.0:2 2.3:3 2.4:5",
        ApiKey.LIST_GROUPS: "0.9:0 0.11:1 2.0:2 2.4:3 2.6:4 3.8:5",
        ApiKey.SASL_HANDSHAKE: "0.10.0:0 1.0:1",
        ApiKey.API_VERSIONS: "0.10.0:0 0.11:1 2.0:2 2.4:3 3.9:4",
        ApiKey.CREATE_TOPICS: "0.10.1:0 0.10.2:1 0.11:2 2.0:3 2.4:5 2.7:6 2.8:7",
        ApiKey.DELETE_TOPICS: "0.10.1:0 0.11:1 2.0:2 2.1:3 2.4:4 2.7:5 2.8:6",
        ApiKey.DELETE_RECORDS: "0.11:0 2.0:1 2.6:2",
        ApiKey.INIT_PRODUCER_ID: "0.11:0 2.0:1 2.4:2 2.5:3 2.7:4 3.8:5",
        ApiKey.OFFSET_FOR_LEADER_EPOCH: "0.11:0 2.0:1 2.1:2 2.3:3 2.8:4",
        ApiKey.ADD_PARTITIONS_TO_TXN: "0.11:0 2.0:1 2.7:2 2.8:3 3.6:4 3.8:5",
        ApiKey.ADD_OFFSETS_TO_TXN: "0.11:0 2.0:1 2.7:2 2.8:3 3.8:4",
        ApiKey.END_TXN: "0.11:0 2.0:1 2.7:2 2.8:3 3.8:4",
        ApiKey.WRITE_TXN_MARKERS: "0.11:0 2.8:1",
        ApiKey.TXN_OFFSET_COMMIT: "0.11:0 2.0:1 2.1:2 2.5:3 3.8:4",
        ApiKey.DESCRIBE_ACLS: "0.11:0 2.0:1 2.5:2 3.3:3",
        ApiKey.CREATE_ACLS: "0.11:0 2.0:1 2.5:2 3.3:3",
        ApiKey.DELETE_ACLS: "0.11:0 2.0:1 2.5:2 3.3:3",
        ApiKey.DESCRIBE_CONFIGS: "0.11:0 1.1:1 2.0:2 2.6:3 2.8:4",
        ApiKey.ALTER_CONFIGS: "0.11:0 2.0:1 2.8:2",
        ApiKey.ALTER_REPLICA_LOG_DIRS: "1.0:0 2.0:1 2.8:2",
        ApiKey.DESCRIBE_LOG_DIRS: "1.0:0 2.0:1 2.6:2 3.2:3 3.3:4",
        ApiKey.SASL_AUTHENTICATE: "1.0:0 2.2:1 2.5:2",
        ApiKey.CREATE_PARTITIONS: "1.0:0 2.0:1 2.5:2 2.7:3",
        ApiKey.CREATE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.4:2 3.3:3",
        ApiKey.RENEW_DELEGATION_TOKEN: "1.1:0 2.0:1 2.5:2",
        ApiKey.EXPIRE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.5:2",
        ApiKey.DESCRIBE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.5:2 3.3:3",
        ApiKey.DELETE_GROUPS: "1.1:0 2.0:1 2.4:2",
        ApiKey.ELECT_LEADERS: "2.2:0 2.4:2",
        ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3:0 2.4:1",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: "2.4:0",
        ApiKey.LIST_PARTITION_REASSIGNMENTS: "2.4:0",
        ApiKey.OFFSET_DELETE: "2.4:0",
        ApiKey.DESCRIBE_CLIENT_QUOTAS: "2.6:0 2.8:1",
        ApiKey.ALTER_CLIENT_QUOTAS: "2.6:0 2.8:1",
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7:0",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "2.7:0",
        ApiKey.ALTER_PARTITION: "2.7:0 3.2:1 3.3:2 3.5:3",
        ApiKey.UPDATE_FEATURES: "2.7:0 3.3:1",
        ApiKey.ENVELOPE: "3.4:0",
        ApiKey.DESCRIBE_CLUSTER: "2.8:0 3.7:1",
        ApiKey.DESCRIBE_PRODUCERS: "2.8:0",
        ApiKey.DESCRIBE_TRANSACTIONS: "3.0:0",
        ApiKey.LIST_TRANSACTIONS: "3.0:0 3.8:1",
        ApiKey.ALLOCATE_PRODUCER_IDS: "3.0:0",
        ApiKey.CONSUMER_GROUP_HEARTBEAT: "3.7:0",
        ApiKey.CONSUMER_GROUP_DESCRIBE: "3.8:0",
    }
)
"""By API key: the releases in which the newest version of the API rose, and to what."""


def release_named(text: str) -> str | None:
    """Return the release that `text` names, also with its patch version, such as 2.8.1; None for any other text.

    0.10 is 0.10.0.
    """
    given = [*text.split("."), "0"]
    return next((release for release in RELEASES if given[: release.count(".") + 1] == release.split(".")), None)


def newest_versions(release: str) -> Mapping[int, int]:
    """Return the newest version of each API that a release served, by API key. `release` is one of `RELEASES`."""
    position = RELEASES.index(release)
    newest: dict[int, int] = {}
    for key, steps in _NEWEST.items():
        for step in steps.split():
            since, version = step.split(":")
            if RELEASES.index(since) <= position:
                newest[key] = int(version)
    return newest
