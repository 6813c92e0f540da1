"""Changes the settings of topics, brokers, loggers and other entities, and applies changes of others.

Owns: what AlterConfigs and IncrementalAlterConfigs mean, the order check - write - notify - apply, and the dynamic
layers of this broker's configuration. Must not know: response layouts, or which parts use a setting (callbacks do).

Invariants: either all changes of a resource are made, or none; a successful response means that the change has taken
effect on this broker; an invalid value in the store is ignored and logged, and never stops the broker.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING

from base.dataclass import dataclass
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_configs import TopicConfigs
from broker.loop.in_order import InOrder
from broker.loop.slices import SlicedWork
from broker.security.password_encoder import CannotDecode, CannotEncode, PasswordEncoder
from broker.settings.component_settings import UnknownHostError, check_hosts
from broker.settings.dynamic_config import check_change, contradicting, usable
from config import broker_properties as rows
from config.broker import BrokerConfig, base_row, is_password
from config.broker_properties import BROKER_PROPERTIES
from config.definition import ConfigError, ConfigErrors, ConfigType, Property, UnknownTopicConfigError, text_of
from config.log_config import CompactionLag, validate_topic_overrides
from config.old_names import TOPIC_RENAMED
from config.topic_properties import TOPIC_PROPERTIES
from controller.store.state_store import StateStore
from controller.tree.entity_configs import all_overrides, change_overrides, entity_overrides
from controller.tree.paths import ConfigEntity, Undecodable, broker_entity, own_entity, topic_entity
from protocol.errors import ErrorCode, KafkaError, without_frames

if TYPE_CHECKING:
    from broker.settings.own_entities import OwnEntities

logger = logging.getLogger("kafka.server.ConfigAdminManager")


class ResourceType(IntEnum):
    """The kind of resource; numbered as in requests."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    """Rejected in a cluster with ZooKeeper, as by Kafka."""
    GROUP = 32
    """As CLIENT_METRICS."""


class Operation(IntEnum):
    """The change of one setting; numbered as in requests. APPEND and SUBTRACT apply to lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# No resource has nearly as many settings.
CHANGES_MAX = 1000
STRING_SIZE_MAX = 32_767
"""What a string of a response may have in the versions of DescribeConfigs before 4."""
PARSED_LENGTH_MAX = 16_384
"""In characters. Parsing longer values of the settings in `PARSED` would hold the event loop."""
PARSED = frozenset(
    (
        rows.LISTENERS,
        rows.ADVERTISED_LISTENERS,
        rows.LISTENER_SECURITY_PROTOCOL_MAP,
        rows.MAX_CONNECTIONS_PER_IP_OVERRIDES,
        rows.SASL_JAAS_CONFIG,
    )
)
STATED_CHANGES_MAX = CHANGES_MAX + 1
"""How many changes of a resource are read: with more it is rejected anyway."""
OPERATIONS = frozenset(Operation)


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A requested change of one setting; `operation` may be any number."""

    key: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class Alteration:
    """Requested changes of one resource. With `replaces`, settings that are not named get their defaults."""

    resource_type: int
    resource_name: str
    changes: Sequence[KeyChange]
    replaces: bool = False


class ConfigChanges:
    """The admin path of settings of one broker."""

    def __init__(
        self,
        broker_id: int,
        store: StateStore,
        config: BrokerConfig,
        topic_configs: TopicConfigs,
        metadata: MetadataCache,
        sliced_work: SlicedWork,
        *,
        on_topic_changed: Callable[[str], Awaitable[None]],
        on_broker_changed: Callable[[], Awaitable[None]],
        own_entities: Mapping[int, OwnEntities],
        check_broker: Callable[[BrokerConfig], None],
        check_policy: Callable[[str, str, Mapping[str, str | None]], None],
    ) -> None:
        """The callbacks apply a topic's overrides, or the dynamic layers of `config`, to the running components.
        `own_entities` are those that Kafka 3.9 with ZooKeeper does not have, by the number of their type in requests.

        `check_broker` raises KafkaError for a changed configuration that parts of the broker cannot use, and
        `check_policy` for values of a topic or broker that the policy of this broker rejects.
        """
        self._broker_id = broker_id
        self._store = store
        self._config = config
        self._topic_configs = topic_configs
        self._metadata = metadata
        self._sliced_work = sliced_work
        self._passwords = PasswordEncoder(config)
        self._known_passwords: dict[ConfigEntity, dict[str, str]] = {}
        """Those of each layer as it was last read, by their stored texts: to decode one takes milliseconds."""
        self._on_topic_changed = on_topic_changed
        self._on_broker_changed = on_broker_changed
        self._own_entities = own_entities
        self._own_types = {own.entity_type: own for own in own_entities.values()}
        self._check_broker = check_broker
        self._check_policy = check_policy
        self._reading = InOrder()
        """Keeps reads of the dynamic layers and their effects in one order: an older one must not undo a newer one."""

    async def alter(self, alterations: Sequence[Alteration], *, validate_only: bool) -> list[KafkaError | None]:
        """Apply the valid changes; return one result per entry, in order: None for success, or the error."""
        asked: Counter[tuple[int, str]] = Counter()
        results: list[KafkaError | None] = []
        pause = self._sliced_work.pause
        for one in alterations:
            await pause()
            asked[one.resource_type, one.resource_name] += 1
        for one in alterations:
            await pause()
            try:
                if asked[one.resource_type, one.resource_name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                _check_shape(one.changes)
                await self._alter(one, validate_only=validate_only)
                results.append(None)
            except KafkaError as error:
                logger.info("refused a change of %s: %s", _shown(one), error.message)
                results.append(without_frames(error))
        return results

    async def apply(self, entity: ConfigEntity) -> None:
        """Apply the settings of `entity` after a change. May be called again."""
        ((entity_type, name), *_) = entity.parts
        if entity_type == "topics" and name is not None:
            pause = self._sliced_work.pause
            if name in self._metadata.topics:
                await self._topic_configs.load([name], pause)
            elif not await self._topic_configs.load_known(name, pause):
                return  # it is deleted, or was not announced yet: its announcement loads its settings
            await self._on_topic_changed(name)
        elif entity_type == "brokers" and name in (None, str(self._broker_id)):
            await self.load_dynamic_layers()
            await self._on_broker_changed()
        elif entity_type in self._own_types and name is not None:
            _apply_own(self._own_types[entity_type], name, await entity_overrides(self._store, entity))

    async def load_own_entities(self) -> None:
        """Read the settings of all entities that Kafka 3.9 with ZooKeeper does not have."""
        for own in self._own_entities.values():
            if await self._store.exists(f"/config/{own.entity_type}") is None:
                continue
            for entity, settings in (await all_overrides(self._store, own.entity_type)).items():
                ((_, name),) = entity.parts
                if name is not None:
                    _apply_own(own, name, settings)

    async def read_again(self) -> None:
        """Read all settings and apply those that changed while no change was reported."""
        await self.load_dynamic_layers()
        await self._on_broker_changed()
        for topic in await self._topic_configs.read_again(self._sliced_work.pause):
            await self._on_topic_changed(topic)
        await self.load_own_entities()

    async def read_unread(self) -> None:
        """Read the overrides of topics that the store has refused so far, and apply those that it returns now."""
        for topic in await self._topic_configs.read_unread(self._sliced_work.pause):
            await self._on_topic_changed(topic)

    async def encode_again(self) -> None:
        """Encode the stored passwords of this broker that only `password.encoder.old.secret` opens with the new one."""
        entity = broker_entity(self._broker_id)
        try:
            stored = await entity_overrides(self._store, entity)
        except Undecodable:
            return  # `load_dynamic_layers` reports it
        if self._encoded_again(stored) != stored:
            await change_overrides(self._store, entity, self._encoded_again, needs_controller=False)
            logger.info("encoded the stored passwords of broker %d with the new secret", self._broker_id)

    def _encoded_again(self, stored: Mapping[str, str]) -> dict[str, str]:
        encoded = dict(stored)
        for key, text in stored.items():
            if is_password(key) and self._passwords.is_encoded_before(text):
                with suppress(CannotDecode, CannotEncode):  # as above
                    encoded[key] = self._passwords.encode(self._passwords.decode(text))
        return encoded

    async def load_dynamic_layers(self) -> None:
        """Read the dynamic layers of this broker's configuration without calling the callback."""
        async with self._reading:
            default = await self._usable_layer(broker_entity(None), per_broker=False)
            broker = await self._usable_layer(broker_entity(self._broker_id), per_broker=True)
            known = {**self._config.dynamic_default, **self._config.dynamic_broker}
            self._apply_consistent(default, broker)
            stored = {**self._config.dynamic_default, **self._config.dynamic_broker}
            changed = {key: text for key, text in stored.items() if known.get(key) != text}
            for warning in self._config.without_effect(changed):
                logger.warning("%s", warning)

    # -- one resource ----------------------------------------------------------------------------------------------

    async def _alter(self, one: Alteration, *, validate_only: bool) -> None:
        if one.resource_type == ResourceType.TOPIC:
            await self._alter_topic(one, validate_only=validate_only)
        elif one.resource_type == ResourceType.BROKER:
            await self._alter_broker(one, validate_only=validate_only)
        elif one.resource_type == ResourceType.BROKER_LOGGER and not one.replaces:
            self._require_this_broker(one.resource_name)
            from broker.settings.logger_levels import change_levels  # on demand: no start needs it

            change_levels(_level_changes(one.changes), validate_only=validate_only)
        elif one.resource_type in self._own_entities:
            await self._alter_own(self._own_entities[one.resource_type], one, validate_only=validate_only)
        elif one.resource_type in set(ResourceType):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "AlterConfigs is only supported for topics and brokers, but resource type is "
                f"{ResourceType(one.resource_type).name}",
            )
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {one.resource_type}")

    async def _alter_topic(self, one: Alteration, *, validate_only: bool) -> None:
        name = one.resource_name
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if name not in self._metadata.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        changes = [
            KeyChange(TOPIC_RENAMED.get(change.key, change.key), change.operation, change.value)
            for change in one.changes
        ]

        def edit(before: Mapping[str, str]) -> Mapping[str, str]:
            edited = _edited({} if one.replaces else before, changes, TOPIC_PROPERTIES)
            checked = _checked_topic(name, edited, CompactionLag.of(self._config))
            self._check_policy(ResourceType.TOPIC.name, name, _sent_values(changes))
            return checked

        await self._write(topic_entity(name), edit, one, validate_only=validate_only)

    async def _alter_broker(self, one: Alteration, *, validate_only: bool) -> None:
        per_broker = bool(one.resource_name)
        if per_broker:
            self._require_this_broker(one.resource_name)
        _check_lengths(one.changes)
        await _check_hosts(one.changes)
        entity = broker_entity(self._broker_id if per_broker else None)

        def edit(before: Mapping[str, str]) -> Mapping[str, str]:
            readable, _ = self._decoded(entity, before)
            after = _edited({} if one.replaces else readable, one.changes, BROKER_PROPERTIES)
            self._check_broker(check_change(self._config, after, per_broker=per_broker))
            self._check_policy(ResourceType.BROKER.name, one.resource_name, _sent_values(one.changes))
            unchanged = {key: before[key] for key, text in readable.items() if after.get(key) == text}
            return self._encoded(after, unchanged)

        await self._write(entity, edit, one, validate_only=validate_only)

    async def _alter_own(self, own: OwnEntities, one: Alteration, *, validate_only: bool) -> None:
        def edit(before: Mapping[str, str]) -> Mapping[str, str]:
            after = _edited({} if one.replaces else before, one.changes, own.properties())
            own.check(one.resource_name, after)
            return after

        await self._write(own_entity(own.entity_type, one.resource_name), edit, one, validate_only=validate_only)

    async def _write(
        self,
        entity: ConfigEntity,
        edit: Callable[[Mapping[str, str]], Mapping[str, str]],
        one: Alteration,
        *,
        validate_only: bool,
    ) -> None:
        if validate_only:
            edit(await entity_overrides(self._store, entity))
            return
        await change_overrides(self._store, entity, edit)
        logger.info("changed %s", _shown(one))
        # The notification has the same effect, but the client's next request may precede it.
        await self.apply(entity)

    def _require_this_broker(self, name: str) -> None:
        if not name.isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        if name != str(self._broker_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {self._broker_id}, but received {name}"
            )

    # -- stored layers ---------------------------------------------------------------------------------------------

    async def _usable_layer(self, entity: ConfigEntity, *, per_broker: bool) -> dict[str, str]:
        try:
            stored = await entity_overrides(self._store, entity)
        except Undecodable as error:
            logger.error("ignoring stored dynamic settings: %s", error)
            return {}
        readable, unreadable = self._decoded(entity, stored)
        self._known_passwords[entity] = {stored[key]: text for key, text in readable.items() if is_password(key)}
        kept, problems = usable(readable, per_broker=per_broker)
        for problem in (*unreadable, *problems):
            logger.error("ignoring a stored dynamic setting: %s", problem)
        return kept

    def _apply_consistent(self, default: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Apply the stored layers. A contradiction leaves out only the settings that take part in it."""
        while True:
            try:
                self._config.apply_dynamic(default=default, broker=broker)
            except ConfigErrors as failure:
                left_out = contradicting(failure.errors, default, broker)
                for key, error in left_out.items():
                    logger.error("ignoring the stored dynamic setting %s, which contradicts others: %s", key, error)
                default = {key: text for key, text in default.items() if key not in left_out}
                broker = {key: text for key, text in broker.items() if key not in left_out}
            else:
                return

    def _decoded(self, entity: ConfigEntity, stored: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """Return a stored layer with decrypted passwords, and a line for each setting that is left out."""
        known = self._known_passwords.get(entity, {})
        readable, problems = {}, []
        for key, text in stored.items():
            if not is_password(key):
                readable[key] = text
                continue
            try:
                readable[key] = known[text] if text in known else self._passwords.decode(text)
            except CannotDecode as error:
                problems.append(f"{key}: {error}")
        return readable, problems

    def _encoded(self, layer: Mapping[str, str], unchanged: Mapping[str, str]) -> dict[str, str]:
        """Return a layer as it is stored. What is `unchanged` keeps its stored text: to encode one takes milliseconds.

        Raises KafkaError(INVALID_CONFIG).
        """
        changed = layer.keys() - unchanged.keys()
        try:
            encoded = {key: self._passwords.encode(layer[key]) for key in changed if is_password(key)}
        except CannotEncode as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return {**layer, **unchanged, **encoded}


def _check_shape(changes: Sequence[KeyChange]) -> None:
    """Check what no kind of resource allows. Raises KafkaError(INVALID_REQUEST)."""
    if len(changes) > CHANGES_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"more than {CHANGES_MAX} changes of one resource")
    if len({change.key for change in changes}) != len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [change.key for change in changes if change.operation != Operation.DELETE and change.value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    for change in changes:
        if change.operation not in OPERATIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.operation}")


def _check_lengths(changes: Iterable[KeyChange]) -> None:
    """Raise KafkaError(INVALID_REQUEST) for a value that takes too long to parse."""
    for change in changes:
        if len(change.value or "") > PARSED_LENGTH_MAX and base_row(change.key) in PARSED:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The value of {change.key[:100]} has more than {PARSED_LENGTH_MAX} characters",
            )


async def _check_hosts(changes: Iterable[KeyChange]) -> None:
    """Raise KafkaError(INVALID_REQUEST) for a limit of connections of a host that has no address."""
    for change in changes:
        if change.key == rows.MAX_CONNECTIONS_PER_IP_OVERRIDES.name and change.operation == Operation.SET:
            try:
                await check_hosts(change.value or "")
            except UnknownHostError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _edited(
    before: Mapping[str, str], changes: Iterable[KeyChange], rows: Mapping[str, Property[object]]
) -> dict[str, str]:
    """Return the settings after the changes.

    Raises KafkaError(INVALID_CONFIG) for a list operation on another type, or a value that no response could have.
    """
    after = dict(before)
    for change in changes:
        if change.operation == Operation.DELETE:
            after.pop(change.key, None)
            continue
        value = change.value or ""
        if change.operation == Operation.SET:
            after[change.key] = value
        else:
            after[change.key] = _edited_list(after.get(change.key), change.key, change.operation, value, rows)
        if len(after[change.key].encode(errors="surrogatepass")) > STRING_SIZE_MAX:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The value of {change.key[:100]} would have more than {STRING_SIZE_MAX} bytes",
            )
    return after


def _edited_list(before: str | None, key: str, operation: int, value: str, rows: Mapping[str, Property[object]]) -> str:
    """Return a list with elements added or removed. A list that is not set begins with its default."""
    row = rows.get(key)
    if row is None or row.type is not ConfigType.LIST:
        word = Operation(operation).name.lower()
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Config value {word} is not allowed for config key: {key}")
    elements = _elements(before if before is not None else text_of(row.default) or "")
    named = _elements(value)
    if operation == Operation.APPEND:
        present = set(elements)
        elements += [element for element in named if element not in present]
    else:
        removed = set(named)
        elements = [element for element in elements if element not in removed]
    return ",".join(elements)


def _elements(text: str) -> list[str]:
    return [element.strip() for element in text.split(",") if element.strip()]


def _checked_topic(name: str, overrides: Mapping[str, str], lag: CompactionLag) -> dict[str, str]:
    try:
        return validate_topic_overrides(overrides, lag)
    except UnknownTopicConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    except ConfigError as error:
        resource = f"ConfigResource(type=TOPIC, name='{name}')"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid config value for resource {resource}: {error}") from error


def _level_changes(changes: Iterable[KeyChange]) -> dict[str, str | None]:
    """Return levels by logger; None: the logger inherits the level of its parent again."""
    for change in changes:
        if change.operation in (Operation.APPEND, Operation.SUBTRACT):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{Operation(change.operation).name} operation is not allowed for the BROKER_LOGGER resource",
            )
    return {change.key: None if change.operation == Operation.DELETE else change.value for change in changes}


def _apply_own(own: OwnEntities, name: str, settings: Mapping[str, str]) -> None:
    try:
        own.apply(name, settings)
    except KafkaError as error:
        logger.error("ignoring the stored settings of %s in %s: %s", name, own.entity_type, error.message)


def _sent_values(changes: Iterable[KeyChange]) -> dict[str, str | None]:
    return {change.key: change.value for change in changes}


def _shown(one: Alteration) -> str:
    """Return the changed names for the log, without values: they may be secrets."""
    keys = ", ".join(change.key for change in one.changes) or "no key"
    return f"{keys} of resource type {one.resource_type}, name {one.resource_name!r}"
