"""The table of broker settings, row by row against what a live Apache Kafka 3.9.1 described."""

import csv
from pathlib import Path

import pytest

from config.broker_properties import BROKER_PROPERTIES
from config.definition import Property, UpdateMode, Visibility, text_of

FIXTURES = Path(__file__).parents[1] / "fixtures" / "config"
with (FIXTURES / "broker-configs.csv").open(newline="") as file:
    REFERENCE = {row["name"]: row for row in csv.DictReader(file)}
INTERNAL = (FIXTURES / "broker-configs-internal.txt").read_text().split()


def as_reference(row: Property[object]) -> dict[str, str]:
    default = text_of(row.default)
    return {
        "name": row.name,
        "type": row.type.name,
        "default": "<null>" if default is None else default,
        "read_only": str(row.update_mode is UpdateMode.READ_ONLY).lower(),
        "sensitive": str(row.is_sensitive).lower(),
        "synonyms": ";".join(name for name in row.synonyms if name != row.name),
        "update_mode": row.update_mode.value,
        "importance": row.importance.value,
        "valid_values": row.valid_values,
    }


DESCRIBED = [name for name, row in REFERENCE.items() if row["type"] != "UNKNOWN"]


@pytest.mark.parametrize("name", DESCRIBED)
def test_row_is_as_kafka_describes_it(name: str) -> None:
    assert as_reference(BROKER_PROPERTIES[name]) == REFERENCE[name]


def test_nothing_else_is_described() -> None:
    described = {row.name for row in BROKER_PROPERTIES.values() if row.visibility is Visibility.DESCRIBED}
    assert described == set(DESCRIBED)


def test_keys_of_plug_ins_are_foreign() -> None:
    foreign = {row.name for row in BROKER_PROPERTIES.values() if row.visibility is Visibility.FOREIGN}
    assert foreign > {name for name, row in REFERENCE.items() if row["type"] == "UNKNOWN"}


@pytest.mark.parametrize("name", INTERNAL)
def test_internal_names_are_accepted(name: str) -> None:
    assert BROKER_PROPERTIES[name].visibility is Visibility.INTERNAL


@pytest.mark.parametrize("row", BROKER_PROPERTIES.values(), ids=lambda row: row.name)
def test_row_is_sound(row: Property[object]) -> None:
    assert row.doc.endswith(".")
    assert row.doc[0].isupper() or row.doc.startswith("https")
    default = text_of(row.default)
    if default is not None and row.validator is not None and default != "":
        assert row.parse(default) == row.default
