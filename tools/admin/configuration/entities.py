"""Whose configuration kafka-configs is about: entities from the command line.

An entity is a type with a name, with the default name, or with none (all of the type). The options pair types with
names in the order in which they are given, and each type has its own options that state both together.

Owns how the options are parsed. Must not know configurations or requests.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tools.base.command_line import CommandLine, UsageError

TOPICS, BROKERS, BROKER_LOGGERS = "topics", "brokers", "broker-loggers"
CLIENTS, USERS, IPS, CLIENT_METRICS, GROUPS = "clients", "users", "ips", "client-metrics", "groups"
ENTITY_TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS, BROKER_LOGGERS, CLIENT_METRICS, GROUPS)
DEFAULT_NAME = ""

_LIST = "entities"
_TYPE, _NAME = "type", "name"
_NAMED: Mapping[str, str] = {
    "--topic": TOPICS,
    "--broker": BROKERS,
    "--broker-logger": BROKER_LOGGERS,
    "--client": CLIENTS,
    "--user": USERS,
    "--ip": IPS,
    "--client-metrics": CLIENT_METRICS,
    "--group": GROUPS,
}
_DEFAULTS: Mapping[str, str] = {
    "--broker-defaults": BROKERS,
    "--client-defaults": CLIENTS,
    "--user-defaults": USERS,
    "--ip-defaults": IPS,
}
_WITH_DEFAULT = frozenset(_DEFAULTS.values())


class Entity(NamedTuple):
    """One entity. The name None means all of the type, the empty name the default entity."""

    type: str
    name: str | None

    @property
    def singular(self) -> str:
        """The type as a singular noun."""
        return self.type.removesuffix("s")


def add_entity_options(line: CommandLine) -> None:
    """Add the options that name entities."""
    types = ", ".join(ENTITY_TYPES)
    line.add_listed("--entity-type", to=_LIST, entry=_TYPE, value="type", help_text=f"The type of an entity: {types}.")
    line.add_listed("--entity-name", to=_LIST, entry=_NAME, value="name", help_text="The name of an entity.")
    line.add_listed("--entity-default", to=_LIST, entry=_NAME, value=None, help_text="The default entity of the type.")
    for option, entity_type in _NAMED.items():
        line.add_listed(option, to=_LIST, entry=option, value="name", help_text=f"One of the {entity_type}.")
    for option, entity_type in _DEFAULTS.items():
        line.add_listed(option, to=_LIST, entry=option, value=None, help_text=f"The default of the {entity_type}.")


def parse_entities(listed: Sequence[tuple[str, str | None]] | None) -> list[Entity]:
    """Return the entities of a command line. Raises UsageError."""
    types: list[str] = []
    names: list[str] = []
    entities: list[Entity] = []
    for option, value in listed or ():
        if option == _TYPE:
            types.append(value or "")
        elif option == _NAME:
            names.append(value or DEFAULT_NAME)
        elif option in _NAMED:
            entities.append(Entity(_NAMED[option], value))
        else:
            entities.append(Entity(_DEFAULTS[option], DEFAULT_NAME))
    if len(names) > len(types):
        raise UsageError("--entity-name and --entity-default need an --entity-type before them")
    named = [*names, *[None] * (len(types) - len(names))]
    # The options that name an entity come first, wherever they are: Kafka's tool reads them before those of defaults.
    entities.sort(key=lambda entity: entity.name == DEFAULT_NAME)
    entities = [*(Entity(*pair) for pair in zip(types, named, strict=True)), *entities]
    _check(entities)
    return entities


def _check(entities: Sequence[Entity]) -> None:
    types = [entity.type for entity in entities]
    if not types:
        raise UsageError("At least one entity type must be specified")
    for entity in entities:
        if entity.type not in ENTITY_TYPES:
            raise UsageError(
                f"Invalid entity type {entity.type}, the entity type must be one of {', '.join(ENTITY_TYPES)} "
                "with a --bootstrap-server or --bootstrap-controller argument"
            )
        if entity.name == DEFAULT_NAME and entity.type not in _WITH_DEFAULT:
            raise UsageError(f"There is no default entity of type {entity.type}")
        if entity.type in (BROKERS, BROKER_LOGGERS) and entity.name and not entity.name.isdecimal():
            raise UsageError(
                f"The entity name for {entity.type} must be a valid integer broker id, but it is: {entity.name}"
            )
    if repeated := sorted({name for name in types if types.count(name) > 1}):
        raise UsageError(f"Duplicate entity type(s) specified: {', '.join(repeated)}")
    if len(types) > 1 and sorted(types) != sorted({CLIENTS, USERS}):
        raise UsageError(f"Only '{USERS}' and '{CLIENTS}' entity types may be specified together")
