"""The table of topic settings, row by row against what a live Apache Kafka 3.9.1 described."""

import csv
from pathlib import Path

import pytest

from config.definition import ConfigError, Property, text_of
from config.topic_properties import BROKER_DEFAULTS, LEADER_REPLICATION_THROTTLED_REPLICAS, TOPIC_PROPERTIES

FIXTURES = Path(__file__).parents[1] / "fixtures" / "config"
with (FIXTURES / "topic-configs.csv").open(newline="") as file:
    REFERENCE = {row["name"]: row for row in csv.DictReader(file)}


def as_reference(row: Property[object]) -> dict[str, str]:
    synonyms = [
        default.property.name + (f"(x{default.factor})" if default.factor != 1 else "")
        for default in BROKER_DEFAULTS.get(row, ())
    ]
    return {
        "name": row.name,
        "type": row.type.name,
        "default": text_of(row.default) or "",
        "read_only": "false",
        "sensitive": "false",
        "synonyms": ";".join(synonyms),
        "importance": row.importance.value,
        "valid_values": row.valid_values,
    }


@pytest.mark.parametrize("name", REFERENCE)
def test_row_is_as_kafka_describes_it(name: str) -> None:
    assert as_reference(TOPIC_PROPERTIES[name]) == REFERENCE[name]


def test_no_other_settings_exist() -> None:
    assert set(TOPIC_PROPERTIES) == set(REFERENCE)


@pytest.mark.parametrize("name", BROKER_DEFAULTS, ids=lambda row: row.name)
def test_default_of_the_broker_is_the_default_of_the_topic(name: Property[object]) -> None:
    values = (
        value if default.factor == 1 else value * default.factor  # type: ignore[operator]
        for default in BROKER_DEFAULTS[name]
        if (value := default.property.default) is not None
    )
    assert next(values) == name.default


@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1,1:2", "10:1001"])
def test_valid_throttled_replicas_are_accepted(text: str) -> None:
    LEADER_REPLICATION_THROTTLED_REPLICAS.parse(text)


@pytest.mark.parametrize("text", ["0", "0:", ":1", "0:1,*", "a:b", "0:1,", "0:1:2"])
def test_invalid_throttled_replicas_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError):
        LEADER_REPLICATION_THROTTLED_REPLICAS.parse(text)
