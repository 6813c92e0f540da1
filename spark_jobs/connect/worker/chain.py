"""The transforms and converters of one connector, as its configuration names them.

Owns how their settings are found: those of a transform `t` begin with `transforms.t.`, of a predicate `p` with
`predicates.p.`, of a converter with the name of its setting. A converter that the connector does not name is that of
the worker, with the worker's settings. Must not know errors of records, nor who sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spark_jobs.connect.base.api import Converter, HeaderConverter, Predicate, Transformation
from spark_jobs.connect.base.connector_settings import (
    HEADER_CONVERTER,
    KEY_CONVERTER,
    PREDICATES,
    TRANSFORMS,
    VALUE_CONVERTER,
)
from spark_jobs.connect.base.definitions import Kind, parse
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.converters.header_values import ConvertedHeaders
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import with_prefix

TYPE, PREDICATE, NEGATE = "type", "predicate", "negate"

_OLD_NAMES: Mapping[str, str] = {"schema.enable": "schemas.enable"}
"""Of settings of converters, as a book has them."""


class Step(NamedTuple):
    """A transform with the records that it applies to: all, or those whose test by `predicate` is `expected`."""

    transformation: Transformation
    predicate: Predicate | None
    expected: bool

    def apply(self, record: Any) -> Any:
        if self.predicate is not None and self.predicate.test(record) is not self.expected:
            return record
        return self.transformation.apply(record)


class Converters(NamedTuple):
    key: Converter
    value: Converter
    header: HeaderConverter


def with_converters(config: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration of a connector with the converters of its worker where it names none."""
    found = dict(config)
    for setting in (KEY_CONVERTER, VALUE_CONVERTER, HEADER_CONVERTER):
        if not config.get(setting) and setting in worker:
            owned = {name: value for name, value in worker.items() if name.startswith(f"{setting}.")}
            found = {name: value for name, value in found.items() if not name.startswith(f"{setting}.")}
            found |= {setting: worker[setting], **owned}
    return found


def build_converters(config: Mapping[str, str], worker: Mapping[str, str], plugins: Plugins) -> Converters:
    """Return the converters of a connector. Raises ConfigError."""

    effective = with_converters(config, worker)

    def build(setting: str, load: Callable[[str], type[Any]]) -> tuple[Any, dict[str, str]]:
        settings = with_prefix(effective, f"{setting}.")
        return load(effective[setting])(), {_OLD_NAMES.get(name, name): value for name, value in settings.items()}

    key, settings = build(KEY_CONVERTER, plugins.converter)
    key.configure(settings, is_key=True)
    value, settings = build(VALUE_CONVERTER, plugins.converter)
    value.configure(settings, is_key=False)
    header, settings = build(HEADER_CONVERTER, plugins.header_converter)
    if isinstance(header, Converter):
        header = ConvertedHeaders(header)
    header.configure(settings)
    return Converters(key, value, header)


def build_steps(config: Mapping[str, str], plugins: Plugins) -> list[Step]:
    """Return the transforms of a connector, in order. Raises ConfigError."""
    predicates = {name: _configured(plugins.predicate, *each) for name, each in _named(config, PREDICATES)}
    steps = []
    for _, (prefix, settings) in _named(config, TRANSFORMS):
        wanted, negated = settings.pop(PREDICATE, None), settings.pop(NEGATE, "false")
        if wanted is not None and wanted not in predicates:
            raise ConfigError(f"{prefix}{PREDICATE} names {wanted}, which is not one of {PREDICATES}")
        steps.append(
            Step(
                _configured(plugins.transformation, prefix, settings),
                None if wanted is None else predicates[wanted],
                not parse(f"{prefix}{NEGATE}", Kind.BOOLEAN, negated),
            )
        )
    return steps


def _named(config: Mapping[str, str], setting: str) -> Iterator[tuple[str, tuple[str, dict[str, str]]]]:
    """Yield each name of a list, with the prefix of its settings and these without it."""
    for name in parse(setting, Kind.LIST, config.get(setting, "")):
        prefix = f"{setting}.{name}."
        yield name, (prefix, with_prefix(config, prefix))


def _configured(load: Callable[[str], type[Any]], prefix: str, settings: dict[str, str]) -> Any:
    name = settings.pop(TYPE, None)
    if name is None:
        raise ConfigError(f'Missing required configuration "{prefix}{TYPE}" which has no default value.')
    plugin = load(name)()
    try:
        plugin.configure(settings)
    except ConfigError as error:
        raise ConfigError(f"{prefix.removesuffix('.')}: {error}") from error
    return plugin


def close(steps: Sequence[Step]) -> None:
    """Release what the transforms and predicates hold."""
    for step in steps:
        step.transformation.close()
        if step.predicate is not None:
            step.predicate.close()
