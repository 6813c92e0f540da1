"""The table of broker settings, row by row against what a live Apache Kafka 3.9.1 described."""

import csv
import re
from pathlib import Path

import pytest

from config.broker_properties import BROKER_PROPERTIES
from config.definition import Property, UpdateMode, Visibility, text_of
from config.topic_properties import TOPIC_PROPERTIES

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


def test_rows_are_as_kafka_describes_them() -> None:
    for name in DESCRIBED:
        assert as_reference(BROKER_PROPERTIES[name]) == REFERENCE[name], name


def test_nothing_else_is_described() -> None:
    described = {row.name for row in BROKER_PROPERTIES.values() if row.visibility is Visibility.DESCRIBED}
    assert described == set(DESCRIBED)


def test_keys_of_plug_ins_are_foreign() -> None:
    foreign = {row.name for row in BROKER_PROPERTIES.values() if row.visibility is Visibility.FOREIGN}
    assert foreign > {name for name, row in REFERENCE.items() if row["type"] == "UNKNOWN"}


@pytest.mark.parametrize("name", INTERNAL)
def test_internal_names_are_accepted(name: str) -> None:
    assert BROKER_PROPERTIES[name].visibility is Visibility.INTERNAL


def test_rows_are_sound() -> None:
    for row in BROKER_PROPERTIES.values():
        assert row.doc.endswith("."), row.name
        assert row.doc[0].isupper() or row.doc.startswith("https"), row.name
        default = text_of(row.default)
        if default is not None and row.validator is not None and default != "":
            assert row.parse(default) == row.default, row.name


BOUNDS = ("lower", "upper")
OTHER_WORDS = {
    "acl": "only", "authorizer": "acls", "delete": "tombstone", "early": "opened", "node": "another name",
    "allow": "may", "append": "gathered", "backlog": "queue", "backoff": "pause", "buffer": "before",
    "bytes": "size", "class": "plug-in", "cleaner": "offset map", "cleanup": "old data", "copy": "tier",
    "dir": "director", "dirs": "director", "disable": "stops", "downconversion": "converted", "endpoint": "host",
    "factor": "share", "fetch": "tier", "flush": "written to disk", "id": " id", "jaas": "login", "jitter": "random",
    "jwks": "keys", "keyfactory": "key derivation", "keymanager": "key manager", "linger": "gathered",
    "listeners": "address", "master": "old name", "max": "largest", "metadata": "raft log", "min": "shortest",
    "message": "record", "metrics": "rates", "name": "plug-in", "overrides": "single", "protocol": "tls",
    "protocols": "tls", "reauth": "authenticat", "refresh": "how often", "remote": "tier", "retention": "deleted",
    "retry": "pause", "san": "alternative names", "dn": "distinguished name", "shutdown": "stopping",
    "task": "after start", "timestamp": "limits", "window": "sample",
}  # fmt: skip
"""What the texts say for words of names that they do not repeat."""


def test_the_text_of_a_row_is_about_its_name() -> None:
    """A text that got into another row shares no word with it, apart from the names of settings that it refers to."""
    rows = [*BROKER_PROPERTIES.values(), *TOPIC_PROPERTIES.values()]
    assert [row.name for row in rows if not _is_about_its_name(row)] == []


def _is_about_its_name(row: Property[object]) -> bool:
    text = row.doc.lower()
    if any(name != row.name and text == f"{bound} bound of {name}." for name in BROKER_PROPERTIES for bound in BOUNDS):
        return True
    for name in sorted(BROKER_PROPERTIES, key=len, reverse=True):
        text = text.replace(name.lower(), " ")
    words = re.split(r"[._]|(?<=[a-z])(?=[A-Z])", row.name)
    stems = {word[:4].lower() for word in words if len(word) > 2} | {OTHER_WORDS.get(word, "\0") for word in words}
    return any(re.search(rf"\b{re.escape(stem)}" if stem.isalpha() else re.escape(stem), text) for stem in stems)


def test_no_two_rows_have_the_same_text() -> None:
    texts = [row.doc for row in BROKER_PROPERTIES.values()]
    assert len(set(texts)) == len(texts)
