"""What is stored in logs or passed through groups, against Kafka's own schemas and kio, for every version.

As with messages (`test_declarations`), but names are compared by place: what is stored has our own names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import pytest
from kafka.protocol.schemas import load_json

from broker.groups.machine.consumer.records import LAYOUTS
from broker.groups.machine.records import GroupMetadataKey, GroupMetadataValue, OffsetAndMetadata, OffsetCommitKey
from broker.transactions.machine.records import TransactionLogKey, TransactionLogValue
from protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from protocol.schema import Struct, message_info
from tests.protocol.test_declarations import Line, _json_range, _resolve_common_structs, declared, in_json
from tests.support import apache_kafka
from tests.support.parts import skip_when_unavailable
from tools.kraft.metadata_records import CONTROL_RECORDS, METADATA_RECORDS, NEWEST_METADATA_RECORDS


class Stored(NamedTuple):
    cls: type
    schema: str
    jar: str
    tags_of_later_kafkas: bool = False
    folder: str = "common/message"


def of_tools(classes: Iterable[type], jar: str, folder: str) -> list[Stored]:
    return [Stored(cls, _FILES_OF_OTHER_NAMES.get(cls.__name__, cls.__name__), jar, folder=folder) for cls in classes]


GROUP_RECORDS = {
    3: "Metadata",
    4: "PartitionMetadata",
    5: "MemberMetadata",
    6: "TargetAssignmentMetadata",
    7: "TargetAssignmentMember",
    8: "CurrentMemberAssignment",
}
"""Kafka's names of the records of groups of the consumer protocol, as of 3.9."""
_FILES_OF_OTHER_NAMES = {"ZkMigrationStateRecord": "ZkMigrationRecord"}
STORED = [
    Stored(OffsetCommitKey, "OffsetCommitKey", "kafka-group-coordinator"),
    Stored(OffsetAndMetadata, "OffsetCommitValue", "kafka-group-coordinator"),
    Stored(GroupMetadataKey, "GroupMetadataKey", "kafka-group-coordinator"),
    Stored(GroupMetadataValue, "GroupMetadataValue", "kafka-group-coordinator"),
    Stored(TransactionLogKey, "TransactionLogKey", "kafka-transaction-coordinator"),
    Stored(TransactionLogValue, "TransactionLogValue", "kafka-transaction-coordinator", tags_of_later_kafkas=True),
    *of_tools(METADATA_RECORDS.values(), "kafka-metadata", "common/metadata"),
    *of_tools((cls for _, cls in CONTROL_RECORDS.values()), "kafka-clients", "common/message"),
    *(
        Stored(cls, f"ConsumerGroup{name}{part}", "kafka-group-coordinator")
        for record_type, name in GROUP_RECORDS.items()
        for part, cls in zip(("Key", "Value"), LAYOUTS[record_type], strict=True)
    ),
    Stored(ConsumerProtocolSubscription, "ConsumerProtocolSubscription", "kafka-clients"),
    Stored(ConsumerProtocolAssignment, "ConsumerProtocolAssignment", "kafka-clients"),
]


OF_KAFKA_4 = [
    *of_tools(NEWEST_METADATA_RECORDS.values(), "kafka-metadata", "common/metadata"),
    *of_tools((cls for _, cls in CONTROL_RECORDS.values()), "kafka-clients", "common/message"),
]


def shapes(lines: list[Line]) -> list[tuple[int, str, bool, bool, int | None]]:
    """Without names: how deep a field is nested, and all that makes its bytes."""
    return [(line.path.count("."), *line[1:]) for line in lines]


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.schema)
def test_fields_are_those_of_apache_kafka(stored: Stored) -> None:
    with skip_when_unavailable():
        jar = apache_kafka.jars() / f"{stored.jar}-{apache_kafka.VERSION}.jar"
    _same_as_in(jar, stored)


@pytest.mark.parametrize("stored", OF_KAFKA_4, ids=lambda stored: stored.schema)
def test_metadata_is_that_of_kafka_4(stored: Stored) -> None:
    with skip_when_unavailable():
        jar = apache_kafka.kraft_jars() / f"{stored.jar}-{apache_kafka.KRAFT_VERSION}.jar"
    _same_as_in(jar, stored)


def _same_as_in(jar: Path, stored: Stored) -> None:
    with ZipFile(jar) as files:
        text = files.read(f"{stored.folder}/{stored.schema}.json").decode()
    schema = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    _resolve_common_structs(schema["fields"], {s["name"]: s["fields"] for s in schema.get("commonStructs", [])})
    _same(stored, schema, list(_json_range(schema["validVersions"])))


@pytest.mark.parametrize("stored", STORED[-2:], ids=lambda stored: stored.schema)
def test_fields_are_those_of_kafka_python(stored: Stored) -> None:
    schema: dict[str, Any] = load_json(stored.schema)
    _same(stored, schema, [v for v in message_info(stored.cls).versions if v in _json_range(schema["validVersions"])])


def _same(stored: Stored, schema: dict[str, Any], versions: list[int]) -> None:
    info = message_info(stored.cls)
    assert versions == list(info.versions)
    flexible = _json_range(schema["flexibleVersions"] if schema["flexibleVersions"] != "none" else None)
    cls: type[Struct] = stored.cls
    for version in versions:
        ours = [line for line in declared(cls, version) if line.tag is None or not stored.tags_of_later_kafkas]
        assert shapes(ours) == shapes(in_json(schema["fields"], version)), version
        assert info.is_flexible_in(version) == (version in flexible)
