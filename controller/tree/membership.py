"""This broker's membership of its cluster: one session, one registration in it, and the broker epoch that it gave.

Owns the order of what begins with a session, at the start and again after the session has expired:

1. resign as controller, since all that an earlier session read is out of date;
2. a new session;
3. the registration, in place of one that an earlier session of this broker left; its broker epoch is higher;
4. the configuration is read again, and its watch armed;
5. take part in the election of the controller.

During these steps the broker serves data as before: leader epochs fence it, not its session. Must not know what is read
in step 4, or how partitions are served.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Protocol

from controller.store.state_store import SessionExpired, StateStore, StoreError, StoreUnavailable
from controller.tree.registration import (
    AlreadyRegisteredError,
    BrokerRegistration,
    IdentityError,
    register_broker,
    update_registration,
)
from protocol.errors import KafkaError

logger = logging.getLogger("kafka.server.KafkaServer")

UNREGISTERED_EPOCH = -1

RETRY_PAUSE_SECONDS_MIN = 0.1
RETRY_PAUSE_SECONDS_MAX = 10.0
PREDECESSOR_POLL_SECONDS = 0.25


class Candidate(Protocol):
    """The controller of this broker, as far as sessions concern it."""

    async def session_expired(self) -> None:
        """Resign, and take part in no election until `rejoin`."""
        ...

    async def rejoin(self) -> None: ...


class Membership:
    def __init__(self, store: StateStore) -> None:
        """`store` is open. Its sessions belong to this object from now on."""
        self._store = store
        self._broker_epoch = UNREGISTERED_EPOCH
        self._session_id: int | None = None
        self._new_registration: Callable[[], BrokerRegistration]
        self._registered: BrokerRegistration
        self._candidate: Candidate | None = None
        self._read_again: Callable[[], Awaitable[None]]
        self._is_expired = False
        self._is_stopped = False
        self._renewing: asyncio.Task[None] | None = None
        store.on_session_expired(self._session_expired)

    @property
    def broker_epoch(self) -> int:
        """The epoch of the latest registration; -1 before the first one."""
        return self._broker_epoch

    async def register(
        self,
        new_registration: Callable[[], BrokerRegistration],
        *,
        wait_ms: int,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Register this broker for the first time; `new_registration()` returns its data, for each session anew.

        A process of this broker that was killed stays registered until its session is over: `wait_ms` limits how long
        to wait for that, and `is_stopped()` ends the wait.

        Raises:
            IdentityError: another broker is registered under the id.
            StoreError, StoreUnavailable: the store cannot be used.
        """
        self._new_registration = new_registration
        try:
            await self._register_first()
        except AlreadyRegisteredError as error:
            if wait_ms <= 0:
                raise
            logger.warning("waiting up to %d ms for the end of an earlier session: %s", wait_ms, error)
            await self._register_after_predecessor(wait_ms, is_stopped)

    async def _register_after_predecessor(self, wait_ms: int, is_stopped: Callable[[], bool]) -> None:
        polls = math.ceil(wait_ms / 1000 / PREDECESSOR_POLL_SECONDS)
        for left in reversed(range(polls)):
            await asyncio.sleep(PREDECESSOR_POLL_SECONDS)
            try:
                await self._register_first()
            except AlreadyRegisteredError:
                if not left or is_stopped():
                    raise
            else:
                return

    async def _register_first(self) -> None:
        while self._is_expired:
            self._is_expired = False
            await self._store.open()
        await self._register()

    def keep(self, candidate: Candidate, read_again: Callable[[], Awaitable[None]]) -> None:
        """Begin a new session whenever one expires, until `stop`. `read_again()` is step 4."""
        self._candidate = candidate
        self._read_again = read_again
        if self._is_expired:
            self._session_expired()

    async def update(self) -> None:
        """Rewrite the registration if its data has changed, as for new advertised listeners. The epoch stays.

        Raises:
            StoreError, StoreUnavailable: the registration could not be written; the next session writes it.
        """
        registration = self._new_registration()
        if registration.broker != self._registered.broker and not self._is_expired:
            await update_registration(self._store, registration)
            self._registered = registration

    async def stop(self) -> None:
        """Begin no more sessions. Closing the store ends the present one, and with it the registration."""
        self._is_stopped = True
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    async def _register(self) -> None:
        registration = self._new_registration()
        previous, self._session_id = self._session_id, self._store.session_id
        self._broker_epoch = await register_broker(self._store, registration, previous_session_id=previous)
        self._registered = registration
        logger.info("broker %d is registered with epoch %d", registration.broker.broker_id, self._broker_epoch)

    def _session_expired(self) -> None:
        self._is_expired = True
        if self._candidate is not None and self._renewing is None and not self._is_stopped:
            self._renewing = asyncio.ensure_future(self._renew(self._candidate))

    async def _renew(self, candidate: Candidate) -> None:
        pause_seconds = RETRY_PAUSE_SECONDS_MIN
        try:
            while self._is_expired:
                await candidate.session_expired()
                try:
                    await self._begin_session(candidate)
                    pause_seconds = RETRY_PAUSE_SECONDS_MIN
                except Exception as error:
                    self._is_expired = True  # also if the session is new: the next attempt replaces it
                    is_bug = not isinstance(error, (IdentityError, StoreError, StoreUnavailable))
                    logger.error(
                        "cannot take part in the cluster, trying again in %.1f s: %s",
                        pause_seconds,
                        error,
                        exc_info=is_bug,
                    )
                    await asyncio.sleep(pause_seconds)
                    pause_seconds = min(pause_seconds * 2, RETRY_PAUSE_SECONDS_MAX)
        finally:
            self._renewing = None

    async def _begin_session(self, candidate: Candidate) -> None:
        await self._store.open()
        self._is_expired = False
        try:
            await self._register()
            await self._read_settings_again()
            await candidate.rejoin()
        except SessionExpired:
            logger.warning("the new session has expired as well")
            self._is_expired = True
        except KafkaError as error:
            logger.warning("no election in the new session yet: %s", error)  # the controller tries again by itself

    async def _read_settings_again(self) -> None:
        """Do step 4. Settings that cannot be used must not keep the broker out of the cluster: they stay as they are.

        Raises StoreError, StoreUnavailable.
        """
        try:
            await self._read_again()
        except (StoreError, StoreUnavailable):
            raise
        except Exception:
            logger.exception("the configuration cannot be read again in the new session")
