"""Offsets of 0.8 consumers, kept in the metadata tree under `/consumers` (version 0 of OffsetCommit and
OffsetFetch).
"""

from __future__ import annotations

from contextlib import suppress

from controller.state_store import NodeExists, NoNode, StateStore, StoreError
from protocol.errors import ErrorCode, KafkaError


class StoredLegacyOffsets:
    """`LegacyOffsets` over the metadata store: one node a partition, its data the offset in decimal."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    async def read(self, group_id: str, topic: str, partition: int) -> int | None:
        """None when nothing was stored, or nothing that is a number. Raises KafkaError when the store is unusable."""
        try:
            node = await self._store.get(_path(group_id, topic, partition))
        except NoNode:
            return None
        except StoreError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        text = (node.data or b"").decode("ascii", "replace").strip()
        return int(text) if text.removeprefix("-").isdecimal() else None

    async def write(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Raises KafkaError when the store is unusable."""
        path, data = _path(group_id, topic, partition), str(offset).encode()
        try:
            try:
                await self._store.set(path, data)
            except NoNode:
                await self._create_with_parents(path, data)
        except StoreError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    async def _create_with_parents(self, path: str, data: bytes) -> None:
        names = path.split("/")[1:]
        for depth in range(1, len(names)):
            with suppress(NodeExists):
                await self._store.create("/" + "/".join(names[:depth]))
        try:
            await self._store.create(path, data)
        except NodeExists:
            await self._store.set(path, data)


def _path(group_id: str, topic: str, partition: int) -> str:
    return f"/consumers/{group_id}/offsets/{topic}/{partition}"
