"""kafka-configs on the metadata store itself, as before brokers had requests for it.

It is needed for SCRAM users and settings of brokers that must exist before the first broker starts. The store is
ZooKeeper (`host:port/chroot`), or the embedded one of a broker that does not run (`sqlite:LOG_DIRECTORY,..`). Running
brokers see a change immediately, because they watch the store; their policies do not see it.

Owns how the store is opened, which changes it accepts without a broker, and the printed lines. Must not know the stored
text of a credential or password.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from broker.loop.clock import SystemClock
from broker.quotas.client_quotas import QuotaChange, check_address, stored_quota
from broker.security.password_encoder import CannotEncode, PasswordEncoder
from broker.security.scram_credentials import Mechanism, Upsertion, parse_credential, stored_text
from broker.settings.dynamic_config import usable
from config.broker import BrokerConfig, is_password
from config.definition import ConfigError, ConfigErrors
from config.log_config import validate_topic_overrides
from controller.embedded.sqlite_store import SqliteStore
from controller.store.state_store import StateStore, StoreError, StoreUnavailable
from controller.tree import paths
from controller.tree.entity_configs import all_overrides, change_overrides
from controller.tree.paths import PERSISTENT_PATHS, ConfigEntity, Undecodable, config_path
from controller.tree.registration import ensure_paths
from controller.zookeeper.security import ZooKeeperSecurity
from controller.zookeeper.settings import ZooKeeperSettings
from controller.zookeeper.store import ZooKeeperStore
from protocol.errors import KafkaError
from protocol.scram_credentials import MECHANISMS
from tools.admin.configuration.entities import BROKERS, CLIENTS, IPS, TOPICS, USERS, Entity
from tools.admin.configuration.quotas import credential, quota_value, right_key
from tools.admin.configuration.resources import InvalidConfigs
from tools.base.command_line import UsageError
from tools.zookeeper.legacy_zookeeper import with_ports
from tools.zookeeper.znode_trees import (
    EMBEDDED,
    NO_SERVER_HINT,
    TreeUnavailableError,
    existing_files,
    metadata_files,
    require_server,
)

T = TypeVar("T")

CONNECT_TIMEOUT_MS: Final = 15_000
_TYPE_WORDS: Final[Mapping[str, str]] = {USERS: "user-principal", CLIENTS: "client-id"}
_OLDER_WORDS: Final[Mapping[str, str]] = {TOPICS: "topic", CLIENTS: "clientId"}
_ENCODER_PREFIX: Final = "password.encoder."
_ANY_BROKER: Final[Mapping[str, str]] = {"log.dirs": "unused"}


class StoreFailed(Exception):  # noqa: N818 - the name states the condition
    """The store cannot be used; the text says why."""


class _Rules(NamedTuple):
    """What the store accepts for one type of entity."""

    stored: Callable[[ConfigEntity, Mapping[str, str]], Mapping[str, str]]
    """Returns the texts to store for new values. Raises UsageError, KafkaError, ConfigError."""
    check_all: Callable[[Mapping[str, str]], object] | None = None
    """Checks all overrides of an entity after a change. Raises ConfigError. None: there is no such rule."""


def describe_stored(address: str, security: ZooKeeperSecurity, entities: Sequence[Entity]) -> list[str]:
    """Return the lines of the entities. Raises UsageError, StoreFailed."""
    asked = _outer_first(entities)

    async def read() -> list[str]:
        async with _opened(address, security, may_create=False) as store:
            outer = asked[0].type
            found = await all_overrides(store, outer) if await store.exists(f"/config/{outer}") is not None else {}
        if all(entity.name is not None for entity in asked) and len(asked) == 1 and outer != USERS:
            found.setdefault(_stored_entity(asked), {})
        return [
            line
            for entity, overrides in sorted(found.items(), key=lambda item: config_path(item[0]))
            if _is_asked(entity, asked)
            for line in _described(entity, overrides)
        ]

    return _run(read)


def alter_stored(
    address: str,
    security: ZooKeeperSecurity,
    entities: Sequence[Entity],
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> str:
    """Set and delete overrides of one entity; return the line to print.

    Raises UsageError, InvalidConfigs, StoreFailed.
    """
    entity = _stored_entity(_outer_first(entities))
    entity_type, name = entity.parts[0]
    rules = _RULES[entity_type]
    deleted = [right_key(key) for key in deleted]
    try:
        made = rules.stored(entity, {right_key(key): text for key, text in added.items()})
    except (ConfigError, KafkaError) as error:
        raise StoreFailed(str(error)) from error

    def edit(before: Mapping[str, str]) -> Mapping[str, str]:
        if missing := [key for key in deleted if key not in before]:
            raise InvalidConfigs(f"Invalid config(s): {','.join(missing)}")
        after = {**{key: value for key, value in before.items() if key not in deleted}, **made}
        if rules.check_all is not None:
            rules.check_all(after)
        return after

    async def write() -> str:
        async with _opened(address, security, may_create=entity_type != TOPICS) as store:
            await ensure_paths(store, PERSISTENT_PATHS)
            if entity_type == TOPICS and await store.exists(f"{paths.TOPICS}/{name}") is None:
                raise StoreFailed(f"Topic '{name}' does not exist")
            if entity_type == IPS:
                await check_address(name)
            if entity_type == BROKERS:
                await _require_stopped(store, name)
            await change_overrides(store, entity, edit, needs_controller=False)
        return _completed(entity)

    return _run(write)


async def _require_stopped(store: StateStore, broker: str | None) -> None:
    """Raise StoreFailed if a broker that the settings are for is running: only the broker itself can check them."""
    running = [name for name in await store.children(paths.BROKER_IDS) if broker in (None, name)]
    if running:
        raise StoreFailed(
            f"broker {', '.join(sorted(running))} is running: --zookeeper changes settings of stopped brokers only; "
            "use --bootstrap-server"
        )


# -- entities --------------------------------------------------------------------------------------------------------


def _outer_first(entities: Sequence[Entity]) -> list[Entity]:
    """Return a user before its clients, as the store nests them. Raises UsageError."""
    for entity in entities:
        if entity.type not in _RULES:
            raise UsageError(f"--zookeeper has no {entity.type}; use --bootstrap-server")
    return sorted(entities, key=lambda entity: entity.type != USERS)


def _stored_entity(entities: Sequence[Entity]) -> ConfigEntity:
    return ConfigEntity(tuple((entity.type, entity.name or None) for entity in entities))


def _is_asked(entity: ConfigEntity, asked: Sequence[Entity]) -> bool:
    """Return whether an entity has the types that are asked for, with their names."""
    return [part[0] for part in entity.parts] == [one.type for one in asked] and all(
        one.name is None or name == (one.name or None) for (_, name), one in zip(entity.parts, asked, strict=True)
    )


def _words(entity: ConfigEntity) -> str:
    """`user-principal 'U', default client-id`, as Kafka 3.9 prints an entity of the store."""
    words = ((_TYPE_WORDS.get(entity_type, entity_type), name) for entity_type, name in entity.parts)
    return ", ".join(f"default {kind}" if name is None else f"{kind} '{name}'" for kind, name in words)


def _completed(entity: ConfigEntity) -> str:
    """Return the line after a change. That of topics and clients is as in Kafka 0.9; 3.9 refuses these types."""
    kind = _OLDER_WORDS.get(entity.parts[0][0])
    if kind is None:
        return f"Completed updating config for entity: {_words(entity)}."
    return f'Updated config for {kind}: "{_older_name(entity)}".'


def _described(entity: ConfigEntity, overrides: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of one entity; credentials and passwords are not shown."""
    shown = {key: "null" if is_password(key) else text for key, text in overrides.items() if key not in MECHANISMS}
    values = ",".join(f"{key}={text}" for key, text in sorted(shown.items()))
    entity_type = entity.parts[0][0]
    if entity_type in _OLDER_WORDS:
        yield f"Configs for {entity_type}:{_older_name(entity)} are {values}"
    elif entity_type != USERS or shown:
        yield f"Configs for {_words(entity)} are {values}"
    if entity_type == USERS and (credentials := _credentials(overrides)):
        yield f"SCRAM credential configs for {_words(entity)} are {credentials}"


def _older_name(entity: ConfigEntity) -> str:
    name = entity.parts[0][1]
    return "<default>" if name is None else name


def _credentials(overrides: Mapping[str, str]) -> str:
    return ", ".join(
        f"{mechanism.stored_name}=iterations={parse_credential(text).iterations}"
        for mechanism in Mechanism
        if (text := overrides.get(mechanism.stored_name)) is not None
    )


# -- values ----------------------------------------------------------------------------------------------------------


def _stored_topic(entity: ConfigEntity, added: Mapping[str, str]) -> Mapping[str, str]:
    return validate_topic_overrides(added)


def _stored_quotas(entity: ConfigEntity, added: Mapping[str, str]) -> Mapping[str, str]:
    made = {key: stored_quota(entity, QuotaChange(key, quota_value(key, text))) for key, text in added.items()}
    return {key: text for key, text in made.items() if text is not None}


def _stored_user(entity: ConfigEntity, added: Mapping[str, str]) -> Mapping[str, str]:
    secrets = [key for key in added if key in MECHANISMS]
    if not secrets:
        return _stored_quotas(entity, added)
    name = entity.parts[0][1]
    if len(entity.parts) > 1 or name is None:
        raise UsageError("SCRAM credentials belong to a user: name it with --entity-name, without a client")
    if len(secrets) != len(added):
        raise UsageError("Cannot alter both quota and SCRAM credential configs simultaneously for users")
    return {key: _stored_credential(name, key, text) for key, text in added.items()}


def _stored_credential(user: str, mechanism: str, text: str) -> str:
    made = credential(user, mechanism, text)
    return stored_text(Upsertion(user, made.mechanism, made.iterations, made.salt, made.salted_password))


def _stored_broker(entity: ConfigEntity, added: Mapping[str, str]) -> Mapping[str, str]:
    """Encrypt passwords with `password.encoder.secret`, which is given like a setting and is not stored."""
    encoder = {key: text for key, text in added.items() if key.startswith(_ENCODER_PREFIX)}
    settings = {key: text for key, text in added.items() if key not in encoder}
    kept, problems = usable(settings, per_broker=entity.parts[0][1] is not None)
    if problems:
        raise StoreFailed("\n".join(problems))
    if not any(map(is_password, kept)):
        return kept
    try:
        passwords = PasswordEncoder(BrokerConfig.from_properties({**_ANY_BROKER, **encoder}))
        return {key: passwords.encode(text) if is_password(key) else text for key, text in kept.items()}
    except (CannotEncode, ConfigErrors) as error:
        raise UsageError(f"{error}: add password.encoder.secret=SECRET, which is not stored") from None


_RULES: Final[Mapping[str, _Rules]] = {
    TOPICS: _Rules(_stored_topic, validate_topic_overrides),
    BROKERS: _Rules(_stored_broker),
    USERS: _Rules(_stored_user),
    CLIENTS: _Rules(_stored_quotas),
    IPS: _Rules(_stored_quotas),
}


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        return asyncio.run(work())
    except (ConfigError, KafkaError, OSError, StoreError, StoreUnavailable, Undecodable) as error:
        raise StoreFailed(str(error)) from error


@asynccontextmanager
async def _opened(address: str, security: ZooKeeperSecurity, *, may_create: bool) -> AsyncIterator[StateStore]:
    store: SqliteStore | ZooKeeperStore
    if address.startswith(EMBEDDED):
        store = SqliteStore(
            _files(address.removeprefix(EMBEDDED), may_create=may_create), SystemClock(), sleep=time.sleep
        )
    else:
        named = with_ports(address)
        try:
            require_server(named.partition("/")[0])
        except TreeUnavailableError as error:
            raise StoreFailed(f"{error}. {NO_SERVER_HINT}") from None
        settings = ZooKeeperSettings(
            named,
            connection_timeout_ms=CONNECT_TIMEOUT_MS,
            security=security,
            set_acl=security.is_identified,
        )
        store = ZooKeeperStore(settings)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def _files(location: str, *, may_create: bool) -> list[Path]:
    try:
        files = metadata_files(location) if may_create else existing_files(location)
    except TreeUnavailableError as error:
        raise StoreFailed(str(error)) from None
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
    return files
