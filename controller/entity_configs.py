"""Configuration of topics, brokers, users, clients and addresses, as it stands in the store.

Owns reading, writing and the notifications by which all brokers learn of a change. Must not know what the settings
mean: callers validate first. Invariants: a change and its notification are written together, and only while there is a
controller; a notification tells whose configuration changed, and the reader takes what it is now, so that two changes
in a row are safe to read once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

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

# Kafka's brokers delete notifications of this age when they read newer ones.
NOTIFICATION_AGE_MS_MAX = 15 * 60 * 1000

ATTEMPTS_MAX = 10

# The node of these goes with the last setting; that of a topic or broker stays, empty.
_TYPES_REMOVED_WHEN_EMPTY = frozenset({"users", "clients", "ips"})

Edit = Callable[[Mapping[str, str]], Mapping[str, str]]


async def topic_overrides(store: StateStore, topic: str) -> dict[str, str]:
    """What is set for a topic; empty when nothing is."""
    return await entity_overrides(store, paths.topic_entity(topic))


async def entity_overrides(store: StateStore, entity: ConfigEntity) -> dict[str, str]:
    """What is set for an entity; empty when nothing is."""
    path = paths.config_path(entity)
    (node,) = await store.get_many([path])
    return {} if node is None else paths.decode_config(path, node.data)


async def all_overrides(store: StateStore, entity_type: str) -> dict[ConfigEntity, dict[str, str]]:
    """What is set for every entity of a type, for users with their clients."""
    names = [f"{entity_type}/{name}" for name in await store.children(f"/config/{entity_type}")]
    if entity_type == "users":
        for user in list(names):
            if await store.exists(f"/config/{user}/clients") is not None:
                names += [f"{user}/clients/{name}" for name in await store.children(f"/config/{user}/clients")]
    nodes = await store.get_many([f"/config/{name}" for name in names])
    return {
        paths.parse_config_entity_path(name): paths.decode_config(name, node.data)
        for name, node in zip(names, nodes, strict=True)
        if node is not None
    }


async def change_overrides(store: StateStore, entity: ConfigEntity, edit: Edit) -> dict[str, str]:
    """Replace what is set for an entity by what `edit` makes of it, and notify all brokers. Returns the result.

    `edit` is called again when somebody else wrote in between. Raises KafkaError(NOT_CONTROLLER) while there is none.
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
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} was changed by others {ATTEMPTS_MAX} times in a row")


def _write(
    entity: ConfigEntity, path: str, values: Mapping[str, str], version: int | None, *, has_children: bool
) -> list[Operation]:
    """The operations that leave `values` in a node that now has `version`, or None if there is none."""
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
    """Calls back for each entity whose configuration changes, in order, from `start` on.

    Whoever starts it reads all configuration afterwards, so that nothing that changed before is missed.
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
        """Watch, and take what is there as known."""
        names = await self._store.children(paths.CONFIG_CHANGES, self._notified)
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
            logger.warning("configuration changes are not followed until the store is back: %s", error)
        finally:
            self._reading = None

    async def _read(self) -> None:
        names = sorted(await self._store.children(paths.CONFIG_CHANGES, self._notified), key=paths.sequence_of)
        fresh = [name for name in names if paths.sequence_of(name) > self._last_sequence]
        nodes = await self._store.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in fresh])
        for name, node in zip(fresh, nodes, strict=True):
            self._last_sequence = paths.sequence_of(name)
            if node is not None:
                await self._tell(name, node.data)
        await self._purge(names)

    async def _tell(self, name: str, data: bytes | None) -> None:
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
