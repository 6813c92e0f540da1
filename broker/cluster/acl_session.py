"""The session with the ensemble that holds the ACLs, if it is not the cluster's own (`authorizer.zookeeper.url`).

Owns the begin of a new session after one has expired. Until then the broker decides by the ACLs that it knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from controller.store.state_store import StateStore, StoreError, StoreUnavailable

logger = logging.getLogger("kafka.security.authorizer.AclAuthorizer")

RETRY_PAUSE_SECONDS: Final = 1.0


class AclSession:
    """Keeps `store` open. `read_again()` is called in each new session."""

    def __init__(self, store: StateStore, read_again: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._read_again = read_again
        self._renewing: asyncio.Task[None] | None = None
        store.on_session_expired(self._expired)

    async def stop(self) -> None:
        """Begin no more sessions."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    def _expired(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        while True:
            try:
                await self._store.open()
                await self._read_again()
            except (StoreError, StoreUnavailable) as error:
                logger.error("ACLs are not up to date, trying again in %.1f s: %s", RETRY_PAUSE_SECONDS, error)
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
            else:
                logger.info("ACLs were read again in a new session with ZooKeeper")
                return
