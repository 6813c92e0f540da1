"""What a broker does when logs or log directories fail while it runs.

Owns the order: serve their partitions no longer, then have the controller elect other leaders. Must not know how a
failure is recognised.
"""

from __future__ import annotations

import asyncio
import logging

from broker.foundation import Foundation
from broker.replica.assigned_replicas import AssignedReplicas
from broker.replica.manager import ReplicaManager
from controller.store.state_store import StoreError, StoreUnavailable
from controller.tree.registration import announce_lost_log_dir
from storage.log.log import Log
from storage.manager.log_observers import LogObserver

logger = logging.getLogger("kafka.server.KafkaServer")

REOPEN_DELAY_S = 1.0


class ReplicaStates:
    """Has the controller send the states of all replicas of this broker again; it learns which cannot be opened."""

    def __init__(self, foundation: Foundation) -> None:
        self._foundation = foundation
        self._delayed: asyncio.TimerHandle | None = None

    def request(self) -> None:
        """Ask for the states now."""
        self._foundation.begin(self._announce(), "notice of a lost log directory")

    def request_later(self) -> None:
        """Ask for them later, to open replicas that could not be opened for lack of descriptors or memory."""
        if self._delayed is None:
            self._delayed = asyncio.get_running_loop().call_later(REOPEN_DELAY_S, self._request_delayed)

    def stop(self) -> None:
        if self._delayed is not None:
            self._delayed.cancel()

    def _request_delayed(self) -> None:
        self._delayed = None
        self.request()

    async def _announce(self) -> None:
        try:
            await announce_lost_log_dir(self._foundation.store, self._foundation.broker_id)
        except (StoreError, StoreUnavailable) as error:
            logger.error("the controller was not notified of the lost log directory, so leaders do not move: %s", error)


class LostLogs(LogObserver):
    """Ends the service of what is lost on one broker. Belongs to the event loop."""

    def __init__(
        self, foundation: Foundation, replicas: ReplicaManager, assigned: AssignedReplicas, states: ReplicaStates
    ) -> None:
        """Observe the logs from now on."""
        self._foundation = foundation
        self._replicas = replicas
        self._assigned = assigned
        self._states = states
        self._loop = asyncio.get_running_loop()
        foundation.log_manager.observers.add(self)

    def went_offline(self, log: Log) -> None:
        """See `LogObserver`. In any thread."""
        self._loop.call_soon_threadsafe(self._log_went_offline, log)

    def directory_lost(self) -> None:
        """Begin to stop serving the partitions of a directory that has failed."""
        self._foundation.begin(self.stop_serving(), "partitions of a lost log directory")

    async def stop_serving(self) -> None:
        """Stop serving the partitions whose logs are offline, and notify the controller."""
        lost = await self._assigned.directory_failed(self._foundation.sliced_work.pause)
        if not lost:
            return
        logger.error("%d partitions are offline with their logs", len(lost))
        self._states.request()

    def stop(self) -> None:
        self._states.stop()

    def _log_went_offline(self, log: Log) -> None:
        """Fail what waits for a log. If it is offline alone, have other replicas lead, as with a failed directory."""
        self._replicas.log_went_offline(log)
        log_manager = self._foundation.log_manager
        directory = log_manager.directory_of(log.topic, log.partition)
        if directory is not None and not directory.is_offline and log_manager.get(log.topic, log.partition) is log:
            self.directory_lost()
