"""Offsets in the metadata store, where consumers of 0.8 store them with version 0 of OffsetCommit.

Membership is not checked: any client may read and write the offsets of a group.

Owns: the path of such an offset, and which group ids are rejected. Must not know: the coordinator or requests.
"""

from __future__ import annotations

from controller.store.state_store import (
    NOT_NAMES_OF_NODES,
    NodeExists,
    NoNode,
    StateStore,
    StoreError,
    StoreUnavailable,
)
from controller.tree import paths
from protocol.errors import ErrorCode, KafkaError


class LegacyOffsets:
    """Reads and writes `/consumers/<group>/offsets/<topic>/<partition>`."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    async def read(self, group_id: str, topic: str, partition: int) -> int | None:
        """Return the stored offset; None if there is none. Raises KafkaError."""
        path = _path(group_id, topic, partition)
        try:
            return paths.decode_consumer_offset((await self._store.get(path)).data)
        except NoNode:
            return None
        except (StoreUnavailable, paths.Undecodable) as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    async def write(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Store an offset. Raises KafkaError."""
        if group_id in NOT_NAMES_OF_NODES:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, f"group id {group_id!r}, which no node can have as its name")
        path, data = _path(group_id, topic, partition), paths.encode_consumer_offset(offset)
        try:
            try:
                await self._store.set(path, data)
            except NoNode:
                await self._create(path, data)
        except (StoreError, StoreUnavailable) as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    async def _create(self, path: str, data: bytes) -> None:
        """Create the node and its parents. If another client does the same concurrently, the last offset wins."""
        words = path.split("/")
        for depth in range(2, len(words)):
            try:
                await self._store.create("/".join(words[:depth]))
            except NodeExists:
                continue
        try:
            await self._store.create(path, data)
        except NodeExists:
            await self._store.set(path, data)


def _path(group_id: str, topic: str, partition: int) -> str:
    if not group_id or "/" in group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, f"group id {group_id!r}, expected a name without a slash")
    return paths.consumer_offset_path(group_id, topic, partition)
