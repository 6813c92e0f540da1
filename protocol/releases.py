"""The API versions that earlier releases of Kafka advertised, from 0.8.2 to 3.9.

Owns these facts. Kafka before 0.10 advertised nothing, so its rows are what it served. The lowest version of each API
was 0, except that of ControlledShutdown before 2.2. Must not know which code limits versions.
"""

from collections.abc import Mapping
from types import MappingProxyType

RELEASES = (
    "0.8.2", "0.9", "0.10.0", "0.10.1", "0.10.2", "0.11", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5",
    "2.6", "2.7", "2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9",
)  # fmt: skip

_NEWEST: Mapping[int, str] = MappingProxyType(
    {
        0: "0.8.2:0 0.9:1 0.10.0:2 0.11:3 1.0:5 2.0:6 2.1:7 2.4:8 2.8:9 3.7:10 3.8:11",  # Produce
        1: "0.8.2:0 0.9:1 0.10.0:2 0.10.1:3 0.11:5 1.0:6 1.1:7 2.0:8 "  # Fetch
        "2.1:10 2.3:11 2.7:12 3.1:13 3.5:15 3.7:16 3.9:17",
        2: "0.8.2:0 0.10.1:1 0.11:2 2.0:3 2.1:4 2.2:5 2.8:6 3.0:7 3.5:8 3.9:9",  # ListOffsets
        3: "0.8.2:0 0.10.0:1 0.10.1:2 0.11:4 1.0:5 2.0:6 2.1:7 2.3:8 2.4:9 2.8:11 3.1:12",  # Metadata
        4: "0.10.0:0 1.0:1 2.2:2 2.4:4 2.8:5 3.2:6 3.4:7",  # LeaderAndIsr
        5: "0.10.0:0 2.2:1 2.4:2 2.6:3 3.4:4",  # StopReplica
        6: "0.10.0:2 0.10.2:3 1.0:4 2.2:5 2.4:6 2.8:7 3.4:8",  # UpdateMetadata
        7: "0.10.0:1 2.2:2 2.4:3",  # ControlledShutdown
        8: "0.8.2:1 0.9:2 0.11:3 2.0:4 2.1:6 2.3:7 2.4:8 3.7:9",  # OffsetCommit
        9: "0.8.2:1 0.10.2:2 0.11:3 2.0:4 2.1:5 2.4:6 2.5:7 3.0:8 3.7:9",  # OffsetFetch
        10: "0.8.2:0 0.11:1 2.0:2 2.4:3 3.0:4 3.8:5 3.9:6",  # FindCoordinator
        11: "0.9:0 0.10.1:1 0.11:2 2.0:3 2.2:4 2.3:5 2.4:6 2.5:7 3.2:9",  # JoinGroup
        12: "0.9:0 0.11:1 2.0:2 2.3:3 2.4:4",  # Heartbeat
        13: "0.9:0 0.11:1 2.0:2 2.4:4 3.2:5",  # LeaveGroup
        14: "0.9:0 0.11:1 2.0:2 2.3:3 2.4:4 2.5:5",  # SyncGroup
        15: "0.9:0 0.11:1 2.0:2 2.3:3 2.4:5",  # DescribeGroups
        16: "0.9:0 0.11:1 2.0:2 2.4:3 2.6:4 3.8:5",  # ListGroups
        17: "0.10.0:0 1.0:1",  # SaslHandshake
        18: "0.10.0:0 0.11:1 2.0:2 2.4:3 3.9:4",  # ApiVersions
        19: "0.10.1:0 0.10.2:1 0.11:2 2.0:3 2.4:5 2.7:6 2.8:7",  # CreateTopics
        20: "0.10.1:0 0.11:1 2.0:2 2.1:3 2.4:4 2.7:5 2.8:6",  # DeleteTopics
        21: "0.11:0 2.0:1 2.6:2",  # DeleteRecords
        22: "0.11:0 2.0:1 2.4:2 2.5:3 2.7:4 3.8:5",  # InitProducerId
        23: "0.11:0 2.0:1 2.1:2 2.3:3 2.8:4",  # OffsetForLeaderEpoch
        24: "0.11:0 2.0:1 2.7:2 2.8:3 3.6:4 3.8:5",  # AddPartitionsToTxn
        25: "0.11:0 2.0:1 2.7:2 2.8:3 3.8:4",  # AddOffsetsToTxn
        26: "0.11:0 2.0:1 2.7:2 2.8:3 3.8:4",  # EndTxn
        27: "0.11:0 2.8:1",  # WriteTxnMarkers
        28: "0.11:0 2.0:1 2.1:2 2.5:3 3.8:4",  # TxnOffsetCommit
        29: "0.11:0 2.0:1 2.5:2 3.3:3",  # DescribeAcls
        30: "0.11:0 2.0:1 2.5:2 3.3:3",  # CreateAcls
        31: "0.11:0 2.0:1 2.5:2 3.3:3",  # DeleteAcls
        32: "0.11:0 1.1:1 2.0:2 2.6:3 2.8:4",  # DescribeConfigs
        33: "0.11:0 2.0:1 2.8:2",  # AlterConfigs
        34: "1.0:0 2.0:1 2.8:2",  # AlterReplicaLogDirs
        35: "1.0:0 2.0:1 2.6:2 3.2:3 3.3:4",  # DescribeLogDirs
        36: "1.0:0 2.2:1 2.5:2",  # SaslAuthenticate
        37: "1.0:0 2.0:1 2.5:2 2.7:3",  # CreatePartitions
        38: "1.1:0 2.0:1 2.4:2 3.3:3",  # CreateDelegationToken
        39: "1.1:0 2.0:1 2.5:2",  # RenewDelegationToken
        40: "1.1:0 2.0:1 2.5:2",  # ExpireDelegationToken
        41: "1.1:0 2.0:1 2.5:2 3.3:3",  # DescribeDelegationToken
        42: "1.1:0 2.0:1 2.4:2",  # DeleteGroups
        43: "2.2:0 2.4:2",  # ElectLeaders
        44: "2.3:0 2.4:1",  # IncrementalAlterConfigs
        45: "2.4:0",  # AlterPartitionReassignments
        46: "2.4:0",  # ListPartitionReassignments
        47: "2.4:0",  # OffsetDelete
        48: "2.6:0 2.8:1",  # DescribeClientQuotas
        49: "2.6:0 2.8:1",  # AlterClientQuotas
        50: "2.7:0",  # DescribeUserScramCredentials
        51: "2.7:0",  # AlterUserScramCredentials
        56: "2.7:0 3.2:1 3.3:2 3.5:3",  # AlterPartition
        57: "2.7:0 3.3:1",  # UpdateFeatures
        58: "3.4:0",  # Envelope
        60: "2.8:0 3.7:1",  # DescribeCluster
        61: "2.8:0",  # DescribeProducers
        65: "3.0:0",  # DescribeTransactions
        66: "3.0:0 3.8:1",  # ListTransactions
        67: "3.0:0",  # AllocateProducerIds
        68: "3.7:0",  # ConsumerGroupHeartbeat
        69: "3.8:0",  # ConsumerGroupDescribe
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
    newest = {}
    for key, steps in _NEWEST.items():
        for step in steps.split():
            since, version = step.split(":")
            if RELEASES.index(since) <= position:
                newest[key] = int(version)
    return newest
