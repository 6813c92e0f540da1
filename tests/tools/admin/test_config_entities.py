"""Entities from the command line."""

import pytest

from tools.admin.configuration.entities import Entity, add_entity_options, parse_entities
from tools.base.command_line import CommandLine, UsageError


def entities(*arguments: str) -> list[Entity]:
    line = CommandLine("kafka-configs", "Entities.")
    add_entity_options(line)
    return parse_entities(line.parse(arguments).entities)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--entity-type", "topics"), [Entity("topics", None)]),
        (("--entity-type", "topics", "--entity-name", "t"), [Entity("topics", "t")]),
        (("--entity-name", "t", "--entity-type", "topics"), [Entity("topics", "t")]),
        (("--entity-type=brokers", "--entity-default"), [Entity("brokers", "")]),
        (("--topic", "t"), [Entity("topics", "t")]),
        (("--broker", "1"), [Entity("brokers", "1")]),
        (("--broker-defaults",), [Entity("brokers", "")]),
        (("--broker-logger", "1"), [Entity("broker-loggers", "1")]),
        (("--ip-defaults",), [Entity("ips", "")]),
        (("--client-metrics", "m"), [Entity("client-metrics", "m")]),
        (("--user", "u", "--client-defaults"), [Entity("users", "u"), Entity("clients", "")]),
        (
            ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "c"),
            [Entity("users", ""), Entity("clients", "c")],
        ),
        (("--entity-type", "users", "--entity-type", "clients"), [Entity("users", None), Entity("clients", None)]),
    ],
)
def test_entities_are_parsed(arguments: tuple[str, ...], expected: list[Entity]) -> None:
    assert entities(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--entity-name", "t"), "need an --entity-type before them"),
        (("--entity-type", "tables"), "Invalid entity type tables, the entity type must be one of topics"),
        (("--entity-type", "topics", "--entity-default"), "There is no default entity of type topics"),
        (("--broker", "one"), "The entity name for brokers must be a valid integer broker id, but it is: one"),
        (("--topic", "t", "--broker", "1"), "Only 'users' and 'clients' entity types may be specified together"),
        (("--user", "a", "--user", "b"), "Duplicate entity type(s) specified: users"),
    ],
)
def test_invalid_combinations_are_usage_errors(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(UsageError) as failure:
        entities(*arguments)
    assert text in str(failure.value)


def test_missing_entity_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="At least one entity type must be specified"):
        parse_entities(None)


def test_entity_type_has_a_singular() -> None:
    assert [Entity(name, "x").singular for name in ("topics", "client-metrics", "ips")] == [
        "topic",
        "client-metric",
        "ip",
    ]
