"""The rows of a DescribeConfigs response for brokers, topics, groups and subscriptions.

Pure functions of the layers of a BrokerConfig and a topic's overrides; the handler copies the rows into its response.
Rows are sorted by name. The synonyms of a setting that have a value are listed, highest layer first, starting at the
setting's own name: a value under the name of another unit does not explain this one.

Owns sources, synonyms and which values are hidden. Must not know requests.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from config.broker import LISTENER_PREFIX, BrokerConfig, base_row
from config.broker_properties import BROKER_PROPERTIES
from config.definition import ConfigType, Property, Source, UpdateMode, Visibility, text_of
from config.log_config import topic_value
from config.topic_properties import BROKER_DEFAULTS, TOPIC_PROPERTIES


class Synonym(NamedTuple):
    """A value that a setting has on one layer; None for a secret."""

    name: str
    value: str | None
    source: Source


class ConfigRow(NamedTuple):
    """One setting as it is described; `value` is None for a secret and for no value."""

    name: str
    value: str | None
    needs_restart: bool
    source: Source
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: ConfigType
    documentation: str


def describe_broker(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigRow]:
    """Every setting of a broker, or those of `names` that exist."""
    return [_broker_row(config, name) for name in _selected(_broker_names(config), names)]


def own_setting(name: str) -> Property[object] | None:
    """Return a setting that Kafka does not have and that is no secret; None for others.

    A DescribeConfigs response hides its value, as Kafka does with every setting that it does not know.
    """
    row = BROKER_PROPERTIES.get(name)
    return row if row is not None and row.visibility is Visibility.FOREIGN and not row.is_sensitive else None


def describe_cluster_default(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigRow]:
    """The dynamic values that hold for all brokers."""
    rows = (_broker_row(config, name) for name in _selected(config.dynamic_default, names))
    source = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        row._replace(
            value=None if row.is_sensitive else config.dynamic_default[row.name],
            source=source,
            synonyms=tuple(synonym for synonym in row.synonyms if synonym.source is source),
        )
        for row in rows
    ]


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigRow]:
    """Every setting of a topic, or those of `names` that exist."""
    return [_topic_row(config, overrides, name) for name in _selected(TOPIC_PROPERTIES, names)]


def describe_client_metrics(settings: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigRow]:
    """What was set of a subscription to metrics of clients, or those settings of `names` that were."""
    from config.client_metrics import CLIENT_METRICS_PROPERTIES  # on demand: no start needs it

    return [
        ConfigRow(
            name,
            settings[name],
            False,
            Source.CLIENT_METRICS_CONFIG,
            False,
            (),
            CLIENT_METRICS_PROPERTIES[name].type,
            CLIENT_METRICS_PROPERTIES[name].doc,
        )
        for name in _selected(settings, names)
    ]


def describe_group(
    config: BrokerConfig, settings: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigRow]:
    """The settings of a group, of which `settings` were set, or those of `names`."""
    from config.group import GROUP_PROPERTIES, shown_of_group  # on demand, as above

    return [
        ConfigRow(
            name,
            shown_of_group(config, settings, name),
            False,
            Source.GROUP_CONFIG if name in settings else Source.DEFAULT_CONFIG,
            False,
            (Synonym(name, settings[name], Source.GROUP_CONFIG),) if name in settings else (),
            GROUP_PROPERTIES[name].type,
            GROUP_PROPERTIES[name].doc,
        )
        for name in _selected(GROUP_PROPERTIES, names)
    ]


def _selected(known: Iterable[str], names: Collection[str] | None) -> list[str]:
    return sorted(known if names is None else set(known).intersection(names))


def _broker_names(config: BrokerConfig) -> set[str]:
    described = {row.name for row in BROKER_PROPERTIES.values() if row.visibility is Visibility.DESCRIBED}
    given = {*config.static, *config.dynamic_default, *config.dynamic_broker}
    internal = {row.name for row in BROKER_PROPERTIES.values() if row.visibility is Visibility.INTERNAL}
    return (described | given) - internal


def _broker_row(config: BrokerConfig, name: str) -> ConfigRow:
    row = base_row(name)
    if row is None or row.visibility is Visibility.FOREIGN:
        synonyms = tuple(_broker_synonyms(config, name, (name,), is_sensitive=True))
        source = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
        return ConfigRow(name, None, True, source, True, synonyms, ConfigType.UNKNOWN, "")
    alternatives = row.synonyms or ((name, row.name) if name.startswith(LISTENER_PREFIX) else (name,))
    synonyms = tuple(_broker_synonyms(config, name, alternatives, is_sensitive=row.is_sensitive))
    return ConfigRow(
        name,
        None if row.is_sensitive else _broker_value(config, name, row),
        row.update_mode is UpdateMode.READ_ONLY,
        synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
        row.is_sensitive,
        synonyms,
        row.type,
        row.doc,
    )


def _broker_value(config: BrokerConfig, name: str, row: Property[object]) -> str | None:
    if name == row.name:
        return text_of(config[row])
    given = (layer[name] for layer in (config.dynamic_broker, config.dynamic_default, config.static) if name in layer)
    return text_of(row.parse(next(given)))


def _broker_synonyms(
    config: BrokerConfig, name: str, alternatives: Collection[str], *, is_sensitive: bool
) -> Iterator[Synonym]:
    """Yield the values of a setting and its alternatives by layer, from the first under its own name."""
    layers = (
        (config.dynamic_broker, Source.DYNAMIC_BROKER_CONFIG),
        (config.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.static, Source.STATIC_BROKER_CONFIG),
        (_defaults(alternatives), Source.DEFAULT_CONFIG),
    )
    own_name_seen = False
    for layer, source in layers:
        for alternative in alternatives:
            own_name_seen = own_name_seen or (alternative == name and alternative in layer)
            if own_name_seen and alternative in layer:
                yield Synonym(alternative, None if is_sensitive else layer[alternative], source)


def _defaults(names: Iterable[str]) -> dict[str, str]:
    rows = (BROKER_PROPERTIES[name] for name in names if name in BROKER_PROPERTIES)
    described = {row.name: text_of(row.default) for row in rows if row.visibility is Visibility.DESCRIBED}
    return {name: text for name, text in described.items() if text is not None}


def _topic_row(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> ConfigRow:
    row = TOPIC_PROPERTIES[name]
    value = text_of(topic_value(config, overrides, row))
    synonyms: tuple[Synonym, ...] = ()
    if behind := BROKER_DEFAULTS.get(row):
        broker_row = behind[0].property
        alternatives = broker_row.synonyms or (broker_row.name,)
        synonyms = tuple(_broker_synonyms(config, broker_row.name, alternatives, is_sensitive=False))
    if name in overrides:
        synonyms = (Synonym(name, value, Source.DYNAMIC_TOPIC_CONFIG), *synonyms)
    source = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
    return ConfigRow(name, value, False, source, row.is_sensitive, synonyms, row.type, row.doc)
