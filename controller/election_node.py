"""Elect the controller: brokers race for one ephemeral node, and the controller epoch fences earlier controllers.

Owns the protocol of `/controller` and `/controller_epoch`. Must not know what a controller does.

Invariant: the node and the new epoch are written in one transaction. So no two terms share an epoch, and a
`FencedStore` that was built with this epoch's version cannot write once another broker has been elected.
"""

import logging
from contextlib import suppress

from base.clock import Clock
from base.dataclass import dataclass
from controller.store.state_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    SetData,
    Stat,
    StateStore,
    StoreError,
    Watch,
)
from controller.tree import paths

logger = logging.getLogger("kafka.controller.KafkaController")

NO_CONTROLLER = -1


@dataclass(frozen=True, slots=True)
class Won:
    """This broker is the controller of `epoch`; `epoch_version` is the fencing token."""

    epoch: int
    epoch_version: int


class ControllerNode:
    def __init__(self, broker_id: int, store: StateStore, clock: Clock) -> None:
        self._broker_id = broker_id
        self._store = store
        self._clock = clock

    async def current(self, watch: Watch) -> int:
        """Return the controller's broker id, or NO_CONTROLLER. In either case the watch fires when it changes."""
        await self._store.exists(paths.CONTROLLER, watch)
        try:
            return paths.decode_controller((await self._store.get(paths.CONTROLLER)).data)
        except NoNode:
            return NO_CONTROLLER

    async def elect(self) -> Won | None:
        """Try to become controller. Return None if another broker won, or if a KRaft controller leads the cluster."""
        if await self._is_migrated():
            return None
        epoch, version = await self._epoch()
        node = paths.encode_controller(self._broker_id, self._clock.now_ms())
        try:
            _, stat = await self._store.multi(
                [
                    Create(paths.CONTROLLER, node, ephemeral=True),
                    SetData(paths.CONTROLLER_EPOCH, paths.encode_controller_epoch(epoch + 1), version),
                ]
            )
        except (NodeExists, BadVersion):
            return await self._won_unnoticed(epoch + 1)
        assert isinstance(stat, Stat)
        return Won(epoch + 1, stat.version)

    async def resign(self, won: Won) -> None:
        """Delete the controller node if it is still that of `won`, so that another election follows."""
        with suppress(StoreError):
            await self._store.multi([Check(paths.CONTROLLER_EPOCH, won.epoch_version), Delete(paths.CONTROLLER)])

    async def remove_leftover(self) -> bool:
        """Delete the controller node if this session owns it from a term that has ended; return whether it did."""
        stat = await self._store.exists(paths.CONTROLLER)
        if stat is None or stat.ephemeral_owner != self._store.session_id:
            return False
        with suppress(NoNode):
            await self._store.delete(paths.CONTROLLER)
        return True

    async def _is_migrated(self) -> bool:
        """Return whether KRaft controllers lead the cluster. Then this broker must not become controller."""
        (node,) = await self._store.get_many([paths.MIGRATION])
        migrated_to = -1 if node is None else paths.decode_migrated_controller_id(node.data)
        if migrated_to >= 0:
            logger.error("not becoming controller: KRaft controller %d leads the cluster (/migration)", migrated_to)
        return migrated_to >= 0

    async def _epoch(self) -> tuple[int, int]:
        """Return the last epoch and the version of its node, which the first controller of a cluster creates."""
        try:
            node = await self._store.get(paths.CONTROLLER_EPOCH)
        except NoNode:
            with suppress(NodeExists):
                await self._store.create(paths.CONTROLLER_EPOCH, paths.encode_controller_epoch(0))
            node = await self._store.get(paths.CONTROLLER_EPOCH)
        return paths.decode_controller_epoch(node.data), node.stat.version

    async def _won_unnoticed(self, epoch: int) -> Won | None:
        """Return the won epoch if this session owns the node.

        A retried write fails after its first try succeeded and the response was lost.
        """
        stat = await self._store.exists(paths.CONTROLLER)
        reached, version = await self._epoch()
        if stat is not None and stat.ephemeral_owner == self._store.session_id and reached == epoch:
            return Won(epoch, version)
        return None
