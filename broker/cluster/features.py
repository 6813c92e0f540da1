"""The features of Kafka 4 as this broker knows them: what it supports, and what its cluster has finalized (KIP-584).

Owns this fact for the whole broker. ApiVersions shows it to clients, which then choose the versions of their
transactions. Must not know who changes levels (the controller does), or what a level means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from config import broker_properties as properties
from config.broker import BrokerConfig
from config.features import FEATURES, NO_FEATURES
from controller.store.state_store import NoNode, StateStore, StoreUnavailable, WatchEvent
from controller.tree import paths

logger = logging.getLogger("kafka.server.BrokerFeatures")

UNKNOWN_EPOCH = -1


def supported_features(config: BrokerConfig) -> Mapping[str, range]:
    """Return the features that a broker with this configuration supports, with their levels.

    A cluster with ZooKeeper may have brokers of Kafka 3.9, which know none of them.
    """
    is_without_kafka = config.has_own_metadata_store or config[properties.TRANSACTION_VERSION_2_ENABLE]
    is_newest = config.inter_broker_protocol.has_features and config[properties.ADVERTISED_KAFKA_VERSION] is None
    return FEATURES if is_without_kafka and is_newest else NO_FEATURES


class ClusterFeatures:
    """The features of one broker."""

    def __init__(self, store: StateStore, supported: Mapping[str, range], first_epoch: int) -> None:
        """`supported` are the levels of each feature. `first_epoch` is the epoch before a level is known."""
        self._store = store
        self.supported = supported
        self.finalized: Mapping[str, int] = {}
        """The finalized level of each feature, without those at level 0."""
        self.epoch = first_epoch
        """Rises with each change of a level."""
        self._reading: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        """Read the levels, and read them again after each change. Called in each session with the store."""
        if self.supported:
            await self._read()

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        try:
            node = await self._store.get(paths.FEATURE_LEVELS, self._changed)
        except NoNode:
            if await self._store.exists(paths.FEATURE_LEVELS, self._changed) is not None:
                await self._read()
            return
        try:
            levels = paths.decode_features(node.data).levels
        except paths.Undecodable as error:
            logger.error("the finalized features stay as they are: %s", error)
            return
        chosen = {name: levels.get(name, versions[-1]) for name, versions in self.supported.items()}
        self.finalized = {name: level for name, level in chosen.items() if level}
        self.epoch = node.stat.version
        # Until somebody changes a level, all of them are as the version of the broker says.
        logger.log(
            logging.INFO if levels else logging.DEBUG, "finalized features: %s, epoch %d", self.finalized, self.epoch
        )

    def _changed(self, _: WatchEvent) -> None:
        self._reading = asyncio.ensure_future(self._read_again())

    async def _read_again(self) -> None:
        try:
            await self._read()
        except StoreUnavailable as error:
            logger.warning("cannot read the features until the store is available again: %s", error)
