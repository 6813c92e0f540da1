"""The registry against the table taken from a live Apache Kafka 3.9.1 in ZooKeeper mode; what is newer is marked."""

import csv
from pathlib import Path

import pytest

from protocol.api import APIS
from protocol.schema import message_info

TABLE = Path(__file__).parents[1] / "fixtures" / "api-versions.csv"


def test_keys_versions_and_flags_are_those_of_kafka() -> None:
    with TABLE.open() as lines:
        expected = [
            (
                int(row["api_key"]),
                row["name"],
                range(int(row["min"]), int(row["max"]) + 1),
                None if row["flexible_from"] == "none" else int(row["flexible_from"]),
                row["requires_cluster_action"] == "true",
            )
            for row in csv.DictReader(lines)
        ]
    assert [
        (api.key, api.name, api.with_zookeeper, api.flexible, api.cluster_action)
        for api in APIS.values()
        if api.with_zookeeper
    ] == expected


def test_newer_versions_are_the_last_ones() -> None:
    for api in APIS.values():
        assert [*api.with_zookeeper, *api.newer] == [*api.versions], api.name


def test_declarations_of_messages_are_those_of_the_table() -> None:
    for api in APIS.values():
        for message in (api.request, api.response):
            info = message_info(message)
            assert (info.api_key, info.versions, info.flexible) == (api.key, api.versions, api.flexible), api.name


def test_registry_is_read_only() -> None:
    with pytest.raises(TypeError):
        APIS[0] = APIS[1]  # type: ignore[index]


def test_classes_follow_the_name_of_the_api() -> None:
    for api in APIS.values():
        assert api.request.__name__ == f"{api.name}Request"
        assert api.response.__name__ == f"{api.name}Response"
