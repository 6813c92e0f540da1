"""Read and write the configuration of topics, brokers, users, clients and IP addresses in the store.

Owns reads, writes and the notifications that report a change to all brokers. Must not know what the settings mean:
callers validate first.

Invariants: a change and its notification are written in one transaction, and only while a controller exists. A
notification names the entity and no values; its reader reads the current configuration, so two changes in a row may be
read once.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from controller.store.state_store import (
    NOT_NAMES_OF_NODES,
    BadVersion,
    Check,
    Create,
    DataTooLarge,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    SetData,
    StateStore,
    StoreUnavailable,
)
from controller.tree import paths
from controller.tree.change_notifications import ChangeListener
from controller.tree.paths import ConfigEntity
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("kafka.common.ZkNodeChangeNotificationListener$ChangeEventProcessThread")

ATTEMPTS_MAX = 10

# The node of these entities is deleted with its last setting; that of a topic or broker stays, empty.
_TYPES_REMOVED_WHEN_EMPTY = frozenset({"users", "clients", "ips"}) | paths.OWN_ENTITY_TYPES

Edit = Callable[[Mapping[str, str]], Mapping[str, str]]


async def overrides_of_topics(store: StateStore, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the configuration overrides of each topic, read in one round trip; empty if there are none.

    Overrides that cannot be decoded are logged and count as none: they must not keep the topic from being served. A
    topic whose node the store refuses to read is logged and left out.

    Raises:
        SessionExpired: the topics must be read again in the next session.
    """
    overrides: dict[str, dict[str, str]] = {}
    async for topic, node in _readable(store, topics):
        overrides[topic] = {}
        if node is not None:
            try:
                overrides[topic] = paths.decode_config(topic, node.data)
            except paths.Undecodable as error:
                logger.error("ignoring the overrides of topic %s: %s", topic, error)
    return overrides


async def _readable(store: StateStore, topics: Sequence[str]) -> AsyncIterator[tuple[str, Node | None]]:
    """Yield each topic with the node of its overrides. If the store refuses nodes, search them by halves."""
    waiting = [topics]
    while waiting:
        part = waiting.pop()
        try:
            nodes = await store.get_many([paths.config_path(paths.topic_entity(topic)) for topic in part])
        except SessionExpired:
            raise
        except StoreUnavailable as error:
            if len(part) == 1:
                logger.error("cannot read the overrides of topic %s: %s", part[0], error)
            else:
                middle = len(part) // 2
                waiting += [part[middle:], part[:middle]]
            continue
        for found in zip(part, nodes, strict=True):
            yield found


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


def check_names(entity: ConfigEntity) -> None:
    """Check that an entity can have a node. Raises KafkaError: INVALID_REQUEST.

    The embedded store alone has `OWN_ENTITY_TYPES`, and it accepts every name.
    """
    for entity_type, name in entity.parts:
        if name in NOT_NAMES_OF_NODES and entity_type not in paths.OWN_ENTITY_TYPES:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Invalid name '{name}' in {entity_type}: no node of the store can have it."
            )


async def change_overrides(
    store: StateStore, entity: ConfigEntity, edit: Edit, *, needs_controller: bool = True
) -> dict[str, str]:
    """Replace the overrides of an entity by `edit(overrides)` and notify all brokers. Return the new overrides.

    `edit` is called again if another writer changed the node in between. Only a tool that runs before the first broker
    needs no controller.

    Raises:
        KafkaError: INVALID_REQUEST for a name or overrides that no node can have, NOT_CONTROLLER if there is no
            controller, UNKNOWN_SERVER_ERROR after `ATTEMPTS_MAX` conflicts.
    """
    check_names(entity)
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
            await store.multi([*([Check(paths.CONTROLLER)] if needs_controller else []), *write, notify])
            return after
        except NoNode as error:
            if error.path == paths.CONTROLLER:
                raise KafkaError(ErrorCode.NOT_CONTROLLER) from error
        except DataTooLarge as error:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"The overrides are too large: {error.path} would exceed 1 MB."
            ) from error
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


class ConfigChangeListener(ChangeListener):
    """Calls `on_change` for each entity whose configuration changes after `start`, in the order of the changes.

    The caller reads all configuration after `start`, so that it misses no earlier change.
    """

    def __init__(self, store: StateStore, on_change: Callable[[ConfigEntity], Awaitable[None] | None]) -> None:
        super().__init__(store, paths.CONFIG_CHANGES, lambda data: on_change(paths.decode_config_change(data)))
