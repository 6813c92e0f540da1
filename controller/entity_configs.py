"""Read and write the configuration of topics, brokers, users, clients and IP addresses in the store.

Owns reads, writes and the notifications that report a change to all brokers. Must not know what the settings mean:
callers validate first.

Invariants: a change and its notification are written in one transaction, and only while a controller exists. A
notification names the entity and no values; its reader reads the current configuration, so two changes in a row may be
read once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from controller import paths
from controller.clock import Clock
from controller.paths import ConfigEntity
from controller.state_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    StateStore,
    StoreError,
    StoreUnavailable,
    WatchEvent,
)
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("kafka.common.ZkNodeChangeNotificationListener$ChangeEventProcessThread")

# Kafka's brokers delete notifications older than this when they read newer ones.
NOTIFICATION_AGE_MS_MAX = 15 * 60 * 1000

ATTEMPTS_MAX = 10

# The node of these entities is deleted with its last setting; that of a topic or broker stays, empty.
_TYPES_REMOVED_WHEN_EMPTY = frozenset({"users", "clients", "ips"})

Edit = Callable[[Mapping[str, str]], Mapping[str, str]]


async def overrides_of_topics(store: StateStore, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the configuration overrides of each topic, read in one round trip; empty if there are none.

    Overrides that cannot be decoded are logged and count as none: they must not keep the topic from being served.
    """
    nodes = await store.get_many([paths.config_path(paths.topic_entity(topic)) for topic in topics])
    overrides: dict[str, dict[str, str]] = {}
    for topic, node in zip(topics, nodes, strict=True):
        overrides[topic] = {}
        if node is not None:
            try:
                overrides[topic] = paths.decode_config(topic, node.data)
            except paths.Undecodable as error:
                logger.error("ignoring the overrides of topic %s: %s", topic, error)
    return overrides


async def entity_overrides(store: StateStore, entity: ConfigEntity) -> dict[str, str]:
    """Return the configuration overrides of an entity; empty if there are none."""
    path = paths.config_path(entity)
    (node,) = await store.get_many([path])
    return {} if node is None else paths.decode_config(path, node.data)


async def all_overrides(store: StateStore, entity_type: str) -> dict[ConfigEntity, dict[str, str]]:
    """Return the overrides of every entity of a type; for users, also those of their clients.

    Overrides that cannot be decoded are logged and left out.
    """
    names = [f"{entity_type}/{name}" for name in await store.children(f"/config/{entity_type}")]
    if entity_type == "users":
        for user in list(names):
            if await store.exists(f"/config/{user}/clients") is not None:
                names += [f"{user}/clients/{name}" for name in await store.children(f"/config/{user}/clients")]
    nodes = await store.get_many([f"/config/{name}" for name in names])
    found: dict[ConfigEntity, dict[str, str]] = {}
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            try:
                found[paths.parse_config_entity_path(name)] = paths.decode_config(f"/config/{name}", node.data)
            except paths.Undecodable as error:
                logger.error("ignoring settings that cannot be decoded: %s", error)
    return found


async def change_overrides(store: StateStore, entity: ConfigEntity, edit: Edit) -> dict[str, str]:
    """Replace the overrides of an entity by `edit(overrides)` and notify all brokers. Return the new overrides.

    `edit` is called again if another writer changed the node in between.

    Raises:
        KafkaError: NOT_CONTROLLER if there is no controller, UNKNOWN_SERVER_ERROR after `ATTEMPTS_MAX` conflicts.
    """
    path = paths.config_path(entity)
    for _ in range(ATTEMPTS_MAX):
        (node,) = await store.get_many([path])
        before = {} if node is None else paths.decode_config(path, node.data)
        after = dict(edit(before))
        version = None if node is None else node.stat.version
        has_children = node is not None and bool(await store.children(path))
        write = _write(entity, path, after, version, has_children=has_children)
        notify = Create(paths.CONFIG_CHANGE_PREFIX, paths.encode_config_change(entity), sequential=True)
        try:
            await _ensure_parents(store, entity)
            await store.multi([Check(paths.CONTROLLER), *write, notify])
            return after
        except NoNode as error:
            if error.path == paths.CONTROLLER:
                raise KafkaError(ErrorCode.NOT_CONTROLLER) from error
        except (BadVersion, NodeExists):
            pass
    raise KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"{path} changed during each of {ATTEMPTS_MAX} attempts: try again",
    )


def _write(
    entity: ConfigEntity, path: str, values: Mapping[str, str], version: int | None, *, has_children: bool
) -> list[Operation]:
    """Return the operations that store `values`; `version` is the node's current version, None if it is missing."""
    removable = entity.parts[-1][0] in _TYPES_REMOVED_WHEN_EMPTY and not values and not has_children
    if version is None:
        return [] if removable else [Create(path, paths.encode_config(values))]
    return [Delete(path, version)] if removable else [SetData(path, paths.encode_config(values), version)]


async def _ensure_parents(store: StateStore, entity: ConfigEntity) -> None:
    for parent in paths.config_parent_paths(entity):
        if await store.exists(parent) is None:
            try:
                await store.create(parent)
            except NodeExists:
                continue


class ConfigChangeListener:
    """Calls `on_change` for each entity whose configuration changes after `start`, in the order of the changes.

    The caller reads all configuration after `start`, so that it misses no earlier change.
    """

    def __init__(
        self, store: StateStore, clock: Clock, on_change: Callable[[ConfigEntity], Awaitable[None] | None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_change = on_change
        self._last_sequence = -1
        self._reading: asyncio.Task[None] | None = None
        self._changed_again = False
        self._stopped = False

    async def start(self) -> None:
        """Set the watch, and skip the notifications that exist already."""
        names = await self._names()
        self._last_sequence = max(map(paths.sequence_of, names), default=-1)
        await self._purge(names)

    def stop(self) -> None:
        self._stopped = True
        if self._reading is not None:
            self._reading.cancel()

    def _notified(self, _: WatchEvent) -> None:
        if self._reading is None and not self._stopped:
            self._reading = asyncio.ensure_future(self._read_all())
        else:
            self._changed_again = True

    async def _read_all(self) -> None:
        try:
            self._changed_again = True
            while self._changed_again and not self._stopped:
                self._changed_again = False
                await self._read()
        except StoreUnavailable as error:
            logger.warning("cannot read configuration changes until the store is available again: %s", error)
        finally:
            self._reading = None

    async def _read(self) -> None:
        names = sorted(await self._names(), key=paths.sequence_of)
        fresh = [name for name in names if paths.sequence_of(name) > self._last_sequence]
        nodes = await self._store.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in fresh])
        for name, node in zip(fresh, nodes, strict=True):
            self._last_sequence = paths.sequence_of(name)
            if node is not None:
                await self._call_back(name, node.data)
        await self._purge(names)

    async def _names(self) -> list[str]:
        """Set the watch, and return the names of the notifications; nodes of others are left alone."""
        names = await self._store.children(paths.CONFIG_CHANGES, self._notified)
        return [name for name in names if paths.is_sequential(name)]

    async def _call_back(self, name: str, data: bytes | None) -> None:
        try:
            result = self._on_change(paths.decode_config_change(data))
            if result is not None:
                await result
        except paths.Undecodable as error:
            logger.error("ignoring configuration change %s: %s", name, error)
        except Exception:
            logger.exception("cannot apply configuration change %s", name)

    async def _purge(self, names: list[str]) -> None:
        oldest_ms = self._clock.now_ms() - NOTIFICATION_AGE_MS_MAX
        nodes = [f"{paths.CONFIG_CHANGES}/{name}" for name in names]
        for path, node in zip(nodes, await self._store.get_many(nodes), strict=True):
            if node is not None and node.stat.ctime_ms < oldest_ms:
                try:
                    await self._store.delete(path)
                except StoreError:
                    continue
