"""Checks the configuration of a connector: all settings, with all errors at once.

The result has the shape of `PUT /connector-plugins/C/config/validate`. Owns this shape, and which definitions apply:
the settings that every connector has, its own, and those of its converters, transforms and predicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from spark_jobs.connect.base.api import Connector, Converter, SinkConnector
from spark_jobs.connect.base.connector_settings import (
    CONNECTOR_CLASS,
    EXACTLY_ONCE,
    HEADER_CONVERTER,
    KEY_CONVERTER,
    OFFSETS_TOPIC,
    PREDICATES,
    PRODUCER_OVERRIDE,
    SINK_SETTINGS,
    SOURCE_SETTINGS,
    TRANSACTION_BOUNDARY,
    TRANSFORMS,
    VALUE_CONVERTER,
    check_topics,
    with_current_names,
)
from spark_jobs.connect.base.definitions import HIDDEN, REQUIRED, Definition, Importance, Kind, Problems, Setting, parse
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.worker.chain import NEGATE, PREDICATE, TYPE, build_converters, build_steps, with_converters
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.providers import masked
from spark_jobs.connect.worker.settings import WorkerSettings, with_prefix
from spark_jobs.connect.worker.topic_creation import creation_settings

CONVERTERS: Final = (KEY_CONVERTER, VALUE_CONVERTER, HEADER_CONVERTER)


def validate(given: Mapping[str, str | None], settings: WorkerSettings, plugins: Plugins) -> dict[str, Any]:
    """Return values, definitions and errors, with references to config providers where `given` has them.

    Raises ConfigError without a known class of a connector, and for a reference that cannot be resolved.
    """
    stored = with_current_names({key: value for key, value in given.items() if value is not None})
    if not stored.get(CONNECTOR_CLASS):
        raise ConfigError(f"Connector config {_shown(stored)} contains no connector type")
    config = settings.providers.resolved(stored)
    connector_class = plugins.connector(config[CONNECTOR_CLASS])
    definition = definition_of(connector_class) + Definition(_of_plugins(config, plugins))
    if not issubclass(connector_class, SinkConnector):
        definition += creation_settings(config)
    problems = definition.validate(config)
    errors = {name: list(each) for name, each in problems.errors.items()}

    def add(name: str, error: object) -> None:
        errors.setdefault(name, []).append(str(error))

    _check_together(connector_class, config, problems, settings, plugins, add)
    shown = {name: [masked(stored, config, text) for text in texts] for name, texts in errors.items()}
    return _result(connector_class, definition, stored, shown)


def definition_of(plugin: type[Any]) -> Definition:
    """Return the settings of a class: of a connector also those that every connector has."""
    own: Definition = plugin.definition
    if issubclass(plugin, Connector):
        return (SINK_SETTINGS if issubclass(plugin, SinkConnector) else SOURCE_SETTINGS) + own
    return own


def _check_together(
    connector_class: type[Connector],
    config: Mapping[str, str],
    problems: Problems,
    settings: WorkerSettings,
    plugins: Plugins,
    add: Any,
) -> None:
    """Report errors of settings that depend on each other, and those that only their classes know.

    What depends on a setting that is invalid already is not checked: it would be reported twice.
    """
    if not _has_errors(problems, CONVERTERS):
        try:
            build_converters(config, settings.given, plugins)
        except Exception as error:  # of a converter's code
            add(VALUE_CONVERTER if config.get(VALUE_CONVERTER) else KEY_CONVERTER, error)
    if not _has_errors(problems, (TRANSFORMS, PREDICATES)):
        try:
            build_steps(config, plugins)
        except Exception as error:
            add(TRANSFORMS, error)
    if issubclass(connector_class, SinkConnector):
        try:
            check_topics(problems.values)
        except ConfigError as error:
            add("topics", error)
    else:
        _check_offsets(config, settings, add)
    try:
        connector = connector_class()
        if settings.exactly_once and not issubclass(connector_class, SinkConnector):
            _check_exactly_once(connector, config, problems, add)
        is_valid = not problems.errors.keys() & connector_class.definition.settings.keys()
        own = connector.validate(with_converters(config, settings.given)) if is_valid else {}
    except Exception as error:
        raise ConfigError(f"The connector {connector_class.__qualname__} cannot check its settings: {error}") from error
    for name, texts in own.items():
        for text in texts:
            add(name, text)


def _has_errors(problems: Problems, settings: Sequence[str]) -> bool:
    """Whether there are errors of these settings, or of those that have their names as a prefix."""
    return any(name == each or name.startswith(f"{each}.") for name in problems.errors for each in settings)


def _check_offsets(config: Mapping[str, str], settings: WorkerSettings, add: Any) -> None:
    """Report what would store the offsets of a source elsewhere than the worker, which reads them from one place."""
    if (topic := config.get(OFFSETS_TOPIC)) and topic != settings.given.get("offset.storage.topic"):
        add(OFFSETS_TOPIC, f"The worker keeps the offsets of all connectors in one place: {topic} is not it.")
    if settings.exactly_once:
        name = "bootstrap.servers"
        brokers = {**settings.client("producer"), **with_prefix(config, PRODUCER_OVERRIDE)}[name]
        if brokers != settings[name]:
            add(
                f"{PRODUCER_OVERRIDE}{name}",
                f"With exactly-once, offsets are written in one transaction with the records, but read from "
                f"{settings[name]}: {brokers} is another cluster.",
            )


def _check_exactly_once(connector: Any, config: Mapping[str, str], problems: Problems, add: Any) -> None:
    support, boundary = (problems.values.get(name, "").lower() for name in (EXACTLY_ONCE, TRANSACTION_BOUNDARY))
    if support == "required" and not connector.exactly_once_support(config):
        add(
            EXACTLY_ONCE,
            "The connector does not support exactly-once semantics with the provided configuration.",
        )
    if boundary == "connector" and not connector.can_define_transaction_boundaries(config):
        add(
            TRANSACTION_BOUNDARY,
            "The connector does not support connector-defined transaction boundaries with the given configuration. "
            "Please reconfigure it to use a different transaction boundary definition.",
        )


def _of_plugins(config: Mapping[str, str], plugins: Plugins) -> Iterator[Setting]:
    """Yield the settings of converters, transforms and predicates under their prefixes."""
    for name in CONVERTERS:
        load = plugins.header_converter if name == HEADER_CONVERTER else plugins.converter
        if config.get(name):
            try:
                found = load(config[name])
            except ConfigError as error:
                yield _refused(name, str(error))
            else:
                yield from _prefixed(f"{name}.", found.definition if issubclass(found, Converter) else Definition())
    for setting, load_step in ((TRANSFORMS, plugins.transformation), (PREDICATES, plugins.predicate)):
        for alias in parse(setting, Kind.LIST, config.get(setting, "")):
            prefix = f"{setting}.{alias}."
            group = f"{setting.capitalize()}: {alias}"
            yield Setting(
                f"{prefix}{TYPE}", Kind.CLASS, REQUIRED, Importance.HIGH, f"The class of {alias}.", group=group
            )
            if setting == TRANSFORMS:
                yield Setting(
                    f"{prefix}{PREDICATE}", Kind.STRING, None, Importance.MEDIUM, "Its predicate.", group=group
                )
                yield Setting(
                    f"{prefix}{NEGATE}", Kind.BOOLEAN, False, Importance.MEDIUM,
                    "Whether it applies to the records that the predicate does not choose.", group=group,
                )  # fmt: skip
            if config.get(f"{prefix}{TYPE}"):
                try:
                    yield from _prefixed(prefix, load_step(config[f"{prefix}{TYPE}"]).definition, group)
                except ConfigError as error:
                    yield _refused(f"{prefix}{TYPE}", str(error))


def _prefixed(prefix: str, definition: Definition, group: str | None = None) -> Iterator[Setting]:
    for each in definition:
        # The check names the setting as the user has written it.
        yield Setting(
            f"{prefix}{each.name}", each.kind, each.default, each.importance, each.doc, each.check, group or each.group,
            each.order, each.width, each.display_name,
        )  # fmt: skip


def _refused(name: str, reason: str) -> Setting:
    """Return the definition of a class that does not exist: every value is an error."""

    def check(_name: str, value: Any) -> None:
        raise ConfigError(f"Invalid value {value} for configuration {name}: {reason}")

    return Setting(name, Kind.CLASS, None, Importance.HIGH, "", check)


def _result(
    connector_class: type[Connector], definition: Definition, config: Mapping[str, str], errors: Mapping[str, list[str]]
) -> dict[str, Any]:
    groups = list(dict.fromkeys(each.group for each in definition if each.group is not None))
    configs: list[dict[str, Any]] = [
        {
            "definition": described(each),
            "value": {
                "name": each.name,
                "value": _value(each, config),
                "recommended_values": list(each.recommended(config)) if each.recommended is not None else [],
                "errors": errors.get(each.name, []),
                "visible": True,
            },
        }
        for each in definition
    ]
    known = {each.name for each in definition}
    configs += [
        {
            "definition": None,
            "value": {
                "name": name,
                "value": config.get(name),
                "recommended_values": [],
                "errors": texts,
                "visible": True,
            },
        }
        for name, texts in errors.items()
        if name not in known
    ]
    return {
        "name": config[CONNECTOR_CLASS],
        "error_count": sum(map(len, errors.values())),
        "groups": groups,
        "configs": configs,
    }


def described(setting: Setting) -> dict[str, Any]:
    """Return a definition as the REST interface has it."""
    is_required = setting.default is REQUIRED
    return {
        "name": setting.name,
        "type": setting.kind.name,
        "required": is_required,
        "default_value": None if is_required or setting.default is None else _text(setting.kind, setting.default),
        "importance": setting.importance.name,
        "documentation": setting.doc,
        "group": setting.group,
        "width": setting.width,
        "display_name": setting.display_name or setting.name,
        "dependents": [],
        "order": setting.order,
        "order_in_group": setting.order,
    }


def _value(setting: Setting, config: Mapping[str, str]) -> str | None:
    if setting.name in config:
        return HIDDEN if setting.kind is Kind.PASSWORD else config[setting.name]
    return None if setting.default is REQUIRED or setting.default is None else _text(setting.kind, setting.default)


def _text(kind: Kind, value: Any) -> str:
    match kind:
        case Kind.BOOLEAN:
            return str(value).lower()
        case Kind.LIST:
            return ",".join(value)
        case Kind.PASSWORD:
            return HIDDEN
        case _:
            return str(value)


def raise_problems(result: Mapping[str, Any]) -> None:
    """Raise ConfigError with all errors of a validation, if there are any."""
    if not result["error_count"]:
        return
    texts = "".join(f"\n{text}" for each in result["configs"] for text in each["value"]["errors"])
    raise ConfigError(
        f"Connector configuration is invalid and contains the following {result['error_count']} error(s):{texts}\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )


def _shown(config: Mapping[str, str]) -> str:
    """Return the names of settings: values may be secrets."""
    return "{" + ", ".join(sorted(config)) + "}"
