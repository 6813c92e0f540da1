"""The leader of the group as a worker sees it: who it is, and how it is asked for what only it may do.

Owns who leads, requests to the leader and their repetition, and the key that signs them. Must not know what is asked
for.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.group.member import Round
from spark_jobs.connect.herders import forwarding
from spark_jobs.connect.stores.config_state import SessionKey, session_key_record
from spark_jobs.connect.stores.configs import ConfigStore
from spark_jobs.connect.worker.settings import WorkerSettings

logger = logging.getLogger("org.apache.kafka.connect.runtime.AbstractHerder")

NO_URL: Final = "NOTUSED"
"""The address, as Kafka has it, of a worker without a REST interface."""
RETRY_S: Final = 0.25
RETRY_MAX_S: Final = 5.0
KEY_BYTES: Final = 32
KEY_ALGORITHM: Final = "HmacSHA256"


class NotLeaderError(ConnectError):
    """Only the leader may do this: the request belongs to this address, "" while there is no leader."""

    def __init__(self, leader_url: str) -> None:
        super().__init__("Cannot complete request because this worker is not the leader of its group")
        self.leader_url = leader_url


class Leader:
    """The leader, which may be this worker. `found` and `lost` are called in one thread."""

    def __init__(self, own_url: str, settings: WorkerSettings, configs: ConfigStore, namespace: str) -> None:
        """See `Herder` for the arguments."""
        self.is_here = False
        self.url = ""
        self._own_url = own_url
        self._key_ttl_ms: int = settings["inter.worker.key.ttl.ms"] if settings.is_distributed else 0
        self._protocol = settings["connect.protocol"].lower() if settings.is_distributed else ""
        self._configs = configs
        self._namespace = namespace
        self._stopping = threading.Event()

    def found(self, found: Round) -> None:
        self.url, self.is_here, self._protocol = found.leader_url, found.is_leader, found.protocol

    def lost(self) -> None:
        self.url, self.is_here = "", False

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._stopping.set()

    def require_here(self) -> None:
        """Raises NotLeaderError."""
        if not self.is_here:
            raise NotLeaderError(self.url)

    def ask(self, method: str, connector: str, what: str, content: Any, here: Callable[[], None]) -> None:
        """Send a request to the leader, or do it here if this worker leads. Raises ConnectError."""
        if self.is_here:
            here()
            return
        if not self.url:
            raise ConnectError("there is no leader at the moment")
        if NO_URL in (self._own_url, self.url):
            raise ConnectError(
                "another process leads, and cannot be reached: set dedicated.mode.enable.internal.rest=true for each"
            )
        path = f"{self._namespace}{forwarding.connector_path(connector, what)}"
        key = self._configs.state.session_key if self.uses_signatures else None
        forwarding.send_internal(self.url, method, path, content, key)

    def repeat(self, ask: Callable[[], None], is_wanted: Callable[[], bool], failure: str) -> None:
        """Ask until it succeeds, with longer and longer pauses, unless it is not wanted any more."""
        pause_s = RETRY_S
        while not self._stopping.is_set() and is_wanted():
            try:
                ask()
            except ConnectError as error:
                logger.warning("%s: %s", failure, error)
                self._stopping.wait(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)
            else:
                return

    @property
    def uses_signatures(self) -> bool:
        """Whether workers sign requests to each other: all of the group support it."""
        return self._protocol == "sessioned"

    def renew_key(self) -> None:
        """If this worker leads, make a key if there is none, or it is too old."""
        if not self.is_here or not self.uses_signatures:
            return
        now_ms = time.time_ns() // 1_000_000
        present = self._configs.state.session_key
        if present is None or now_ms - present.created_ms >= self._key_ttl_ms:
            key = SessionKey(secrets.token_bytes(KEY_BYTES), KEY_ALGORITHM, now_ms)
            self._configs.write([session_key_record(key)])
