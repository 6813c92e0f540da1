"""The settings of one broker: read, validated and layered.

A value comes from the highest of four layers: dynamic for this broker, dynamic for all brokers, the file with the
command line's overrides, the table's default. The layers keep the texts as given, for DescribeConfigs; `config[ROW]`
returns the typed value.

Invariants: every text in a layer whose key is in the table parses, and the effective values satisfy all rules between
settings. A change that would violate either is rejected and changes nothing.

Owns the layers and their precedence. Must not know where dynamic values are stored.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar, cast

from config import broker_properties as rows
from config import checks, old_names, providers
from config.broker_properties import BROKER_PROPERTIES
from config.definition import HIDDEN, ConfigError, ConfigErrors, Property, Visibility, text_of
from config.inter_broker import InterBrokerProtocol, inter_broker_protocol
from config.listeners import BrokerListeners, Listener, read_listeners
from config.no_effect import (
    PLUG_IN_PREFIXES,
    REPORTERS,
    broker_lines,
    topic_lines,
    unloaded_reporters,
    why_without_effect,
)

T = TypeVar("T")

LISTENER_PREFIX = "listener.name."

_PROVIDER_PREFIX = "config.providers."
_LIKENESS_MIN = 0.8
"""The least similarity (`difflib` ratio) of a known key that is suggested for an unknown one."""


class BrokerConfig:
    """The settings of one broker. Built by `from_properties`; changed at run time only by `apply_dynamic`.

    `warnings` and `notices` are lines to log at start: settings to change, and information.
    """

    def __init__(
        self, static: Mapping[str, str], dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]
    ) -> None:
        """Parse and validate the layers. Unknown keys stay in their layer.

        Raises:
            ConfigErrors: with all errors.
        """
        self.static: Mapping[str, str] = dict(static)
        self.dynamic_default: Mapping[str, str] = dict(dynamic_default)
        self.dynamic_broker: Mapping[str, str] = dict(dynamic_broker)
        self.warnings: list[str] = []
        self.notices: list[str] = []
        self._values, errors = _parse(self.dynamic_broker, self.dynamic_default, self.static)
        self._listeners = self._check(errors)

    @classmethod
    def from_properties(cls, static: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> "BrokerConfig":
        """Build the settings from a file and the command line, which wins. An unknown key is kept, with a warning.

        Raises:
            ConfigErrors: with all errors.
        """
        overrides = overrides or {}
        resolved, errors = providers.resolve({**static, **overrides})
        settings, warnings = old_names.rename(resolved)
        errors += _unify_broker_id(settings)
        warnings += filter(None, map(_warning, settings))
        try:
            config = cls(settings, {}, {})
        except ConfigErrors as failure:
            # Of the two names of the broker id, only the one that was set is wrong.
            copied = {rows.BROKER_ID.name, rows.NODE_ID.name} - resolved.keys()
            wrong = [*errors, *(one for one in failure.errors if one.key not in copied)]
            raise ConfigErrors(wrong, warnings) from None
        if errors:
            raise ConfigErrors(errors, warnings)
        config.warnings += warnings
        if _has_ignored_log_dir(static, overrides):
            config.warnings.append(f"{rows.LOG_DIR.name} is ignored, because {rows.LOG_DIRS.name} is set")
        config.warnings += config.without_effect(settings)
        config.warnings += unloaded_reporters(name for row in REPORTERS for name in config[row])
        config.warnings += [
            f"listener {listener} is not opened: {rows.CONTROLLER_LISTENER_NAMES.name} reserves it for controllers in "
            "Kafka's KRaft mode, which is not supported"
            for listener in config._listeners.of_controllers
        ]
        if overrides:
            shown = ", ".join(f"{key}={_shown(key, value)}" for key, value in overrides.items())
            config.notices.append(f"set by overrides: {shown}")
        config.notices += _notices(settings)
        return config

    def __getitem__(self, row: Property[T]) -> T:
        return cast(T, self._values[row])

    def is_set(self, row: Property[object]) -> bool:
        """Return whether the value was set, rather than taken from the table's defaults."""
        return any(row.name in layer for layer in (self.dynamic_broker, self.dynamic_default, self.static))

    def of_listener(self, name: str, row: Property[T], mechanism: str = "") -> T | None:
        """Return the value of `listener.name.<name>.<row>`, or None if it is not set. The case of `name` is ignored.

        With a SASL mechanism, the value of `listener.name.<name>.<mechanism>.<row>`.
        """
        scope = f"{name}.{mechanism}" if mechanism else name
        key = f"{LISTENER_PREFIX}{scope.lower()}.{row.name}"
        for layer in (self.dynamic_broker, self.dynamic_default, self.static):
            if key in layer:
                return row.parse(layer[key])
        return None

    def for_listener(self, name: str, row: Property[T], mechanism: str = "") -> T:
        """Return the value for a listener: `listener.name.<name>.<mechanism>.<row>`, or the next less specific one."""
        own = self.of_listener(name, row, mechanism) if mechanism else None
        if own is None:
            own = self.of_listener(name, row)
        return self[row] if own is None else own

    @property
    def has_own_metadata_store(self) -> bool:
        """Whether this is a broker of its own, and not one of a cluster with ZooKeeper."""
        return not self[rows.ZOOKEEPER_CONNECT]

    @property
    def log_dirs(self) -> list[str]:
        """The directories of the partition logs."""
        text = self[rows.LOG_DIRS]
        return checks.folders(self[rows.LOG_DIR] if text is None else text)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The addresses to bind."""
        return self._listeners.bound

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """The addresses for clients; by default those to bind. Hosts may be empty and ports 0, as configured."""
        return self._listeners.advertised

    @property
    def inter_broker_listener(self) -> Listener:
        """The advertised listener that other brokers connect to."""
        return self._listeners.inter_broker

    @property
    def control_plane_listener(self) -> Listener | None:
        """The advertised listener that the controller connects to; None if it is the inter-broker listener."""
        return self._listeners.control_plane

    @property
    def inter_broker_protocol(self) -> InterBrokerProtocol:
        """What this broker sends to other brokers."""
        return inter_broker_protocol(self[rows.INTER_BROKER_PROTOCOL_VERSION])

    @property
    def group_protocols(self) -> frozenset[str]:
        """The protocols of groups that are offered; a broker of its own has all unless it is told otherwise."""
        if rows.GROUP_COORDINATOR_REBALANCE_PROTOCOLS.name not in self.static and self.has_own_metadata_store:
            return frozenset({"classic", "consumer", "share"})
        return frozenset(self[rows.GROUP_COORDINATOR_REBALANCE_PROTOCOLS])

    @property
    def has_group_settings(self) -> bool:
        """Whether single groups have settings: not in a cluster where brokers of Kafka 3.9 may stand beside."""
        return self.has_own_metadata_store or "share" in self.group_protocols

    def apply_dynamic(self, *, default: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Replace both dynamic layers in one step.

        Raises:
            ConfigErrors: the new values are invalid; nothing was changed.
        """
        changed = BrokerConfig(self.static, default, broker)
        self.dynamic_default, self.dynamic_broker = changed.dynamic_default, changed.dynamic_broker
        self._values, self._listeners = changed._values, changed._listeners

    def without_effect(self, settings: Mapping[str, str]) -> list[str]:
        """Lines for the log, one for each of `settings` that is accepted and has no effect, with the reason."""
        reasons = {key: why for key in settings if (why := why_without_effect(key, base_row(key))) is not None}
        return broker_lines(reasons, settings, self[rows.INTER_BROKER_PROTOCOL_VERSION])

    def without_effect_on_topic(self, topic: str, overrides: Mapping[str, str]) -> list[str]:
        """The same for overrides of a topic. Every one is known and parses."""
        return list(topic_lines(topic, overrides, self[rows.INTER_BROKER_PROTOCOL_VERSION]))

    def effective_values(self) -> Iterator[tuple[str, str | None]]:
        """Every described setting with its value as text, sorted; passwords hidden. For the log of the start."""
        for name in sorted(BROKER_PROPERTIES):
            row = BROKER_PROPERTIES[name]
            if row.visibility is Visibility.DESCRIBED:
                yield name, text_of(self[row])

    def _check(self, errors: list[ConfigError]) -> BrokerListeners:
        """The listeners, when nothing is wrong with any setting."""
        errors = [*errors, *checks.problems(self, {error.key for error in errors})]
        try:
            listeners = read_listeners(self)
        except ConfigError as error:
            raise ConfigErrors([*errors, error]) from None
        if errors:
            raise ConfigErrors(errors)
        return listeners


def base_row(key: str) -> Property[object] | None:
    """Return the row of a key, which may have the prefix `listener.name.<listener>.` and a mechanism, or None."""
    if not key.startswith(LISTENER_PREFIX):
        return BROKER_PROPERTIES.get(key)
    name = key[len(LISTENER_PREFIX) :]
    for _ in ("listener", "mechanism"):
        name = name.partition(".")[2]
        if name in BROKER_PROPERTIES:
            return BROKER_PROPERTIES[name]
    return None


def is_password(key: str) -> bool:
    """Return whether the value of a setting is a secret, which is stored encrypted and never shown."""
    row = base_row(key)
    return row is not None and row.is_sensitive


def _parse(*layers: Mapping[str, str]) -> tuple[dict[Property[object], object], list[ConfigError]]:
    """Return the effective value of every row, the first layer winning, and the errors."""
    values: dict[Property[object], object] = {row: row.default for row in BROKER_PROPERTIES.values()}
    errors: list[ConfigError] = []
    for layer in reversed(layers):
        for key, text in layer.items():
            row = base_row(key)
            if row is None:
                continue
            try:
                value = row.parse(text)
            except ConfigError as error:
                errors.append(ConfigError(key, error.value, error.expected))
            else:
                if row.name == key:
                    values[row] = value
    return values, errors


def _unify_broker_id(settings: dict[str, str]) -> list[ConfigError]:
    """Give broker.id and node.id, which are one setting, the same value, in place."""
    broker_key, node_key = rows.BROKER_ID.name, rows.NODE_ID.name
    broker_id, node_id = settings.get(broker_key), settings.get(node_key)
    if broker_id is not None and node_id is not None and broker_id.strip() != node_id.strip():
        return [ConfigError(node_key, node_id, f"Value must be the same as {broker_key} ({broker_id})")]
    if broker_id is not None:
        settings[node_key] = broker_id
    elif node_id is not None:
        settings[broker_key] = node_id
    return []


def _has_ignored_log_dir(static: Mapping[str, str], overrides: Mapping[str, str]) -> bool:
    """Return whether the settings name a folder in vain. An override that replaces that of the file is meant so."""
    several, single = rows.LOG_DIRS.name, rows.LOG_DIR.name
    if several in overrides:
        return single in overrides
    return several in static and (single in static or single in overrides)


def _warning(key: str) -> str | None:
    if (warning := old_names.warning_for(key)) is not None:
        return warning
    if is_known(key):
        return None
    nearest = nearest_key(key)
    suggestion = "" if nearest is None else f"; the nearest known key is {nearest}"
    return f"Unknown key {key} is kept, but the broker does not read it{suggestion}"


def is_known(key: str) -> bool:
    """Return whether a key is one of the broker's, or may be that of a plug-in."""
    return base_row(key) is not None or key.startswith((_PROVIDER_PREFIX, *PLUG_IN_PREFIXES))


def nearest_key(key: str) -> str | None:
    """Return the known key that is most like an unknown one; None if none is."""
    from difflib import get_close_matches  # imported only if a file has an unknown key

    return next(iter(get_close_matches(key, BROKER_PROPERTIES, n=1, cutoff=_LIKENESS_MIN)), None)


def _notices(settings: Mapping[str, str]) -> Iterator[str]:
    if not settings.get(rows.ZOOKEEPER_CONNECT.name, "").strip():
        yield "zookeeper.connect is not set: metadata is kept in the embedded store of this single broker"


def _shown(key: str, text: str) -> str:
    row = base_row(key)
    # The value of an unknown key may be a secret of a plug-in.
    return text if row is not None and not row.is_sensitive else HIDDEN
