"""What a broker does when logs or log directories fail while it runs.

Owns the order: serve their partitions no longer, then have the controller elect other leaders. Must not know how a
failure is recognised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from broker.assembly import Foundation
from broker.requests.services import Services
from controller.registration import announce_lost_log_dir
from controller.state_store import StoreError, StoreUnavailable
from storage.log.log import Log

logger = logging.getLogger("kafka.server.KafkaServer")

REOPEN_DELAY_S = 1.0


class LostLogs:
    """Ends the service of what is lost on one broker. Belongs to the event loop."""

    def __init__(
        self, foundation: Foundation, services: Services, notify: Callable[[Coroutine[None, None, None], str], None]
    ) -> None:
        """Connect the log directories with what serves their partitions. `notify(work, name)` begins work in a task."""
        self._foundation = foundation
        self._services = services
        self._notify = notify
        self._reopening: asyncio.TimerHandle | None = None
        log_manager, replica_manager = services.log_manager, services.replica_manager
        loop = asyncio.get_running_loop()
        log_manager.on_write_finished = replica_manager.write_finished
        log_manager.on_log_start_raised = replica_manager.log_start_raised
        log_manager.on_log_offline = lambda log: loop.call_soon_threadsafe(self._log_went_offline, log)
        replica_manager.on_not_opened = self._reopen_later

    def directory_lost(self) -> None:
        """Begin to stop serving the partitions of a directory that has failed."""
        self._notify(self.stop_serving(), "partitions of a lost log directory")

    async def stop_serving(self) -> None:
        """Stop serving the partitions whose logs are offline, and notify the controller."""
        lost = await self._services.replica_manager.directory_failed(self._services.sliced_work.pause)
        if not lost:
            return
        logger.error("%d partitions are offline with their logs", len(lost))
        self._request_replica_states()

    def stop(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()

    def _log_went_offline(self, log: Log) -> None:
        """Fail what waits for a log. If it is offline alone, have other replicas lead, as with a failed directory."""
        self._services.replica_manager.log_went_offline(log)
        log_manager = self._services.log_manager
        directory = log_manager.directory_of(log.topic, log.partition)
        if directory is not None and not directory.is_offline and log_manager.get(log.topic, log.partition) is log:
            self.directory_lost()

    def _reopen_later(self) -> None:
        """Retry later to open replicas that could not be opened for lack of descriptors or memory."""
        if self._reopening is None:
            self._reopening = asyncio.get_running_loop().call_later(REOPEN_DELAY_S, self._reopen)

    def _reopen(self) -> None:
        self._reopening = None
        self._request_replica_states()

    def _request_replica_states(self) -> None:
        """Have the controller send the states of all replicas again; it learns which of them cannot be opened."""
        self._notify(_announce(self._foundation), "notice of a lost log directory")


async def _announce(foundation: Foundation) -> None:
    try:
        await announce_lost_log_dir(foundation.store, foundation.broker_id)
    except (StoreError, StoreUnavailable) as error:
        logger.error("the controller was not notified of the lost log directory, so leaders do not move: %s", error)
