"""kafka-configs on the metadata store itself, for SCRAM users that must exist before the first broker starts.

The store is ZooKeeper (`host:port/chroot`) or the embedded one of a broker that does not run (`sqlite:LOG_DIRECTORY`).
Owns how it is opened, and the printed lines. Must not know the stored text of a credential.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from broker.loop.clock import SystemClock
from broker.security.scram_credentials import Mechanism, Upsertion, parse_credential, stored_text
from controller.entity_configs import all_overrides, change_overrides
from controller.paths import PERSISTENT_PATHS, ConfigEntity, Undecodable
from controller.registration import ensure_paths
from controller.sqlite_store import METADATA_FILE, SqliteStore
from controller.state_store import StateStore, StoreError, StoreUnavailable
from controller.zookeeper.security import ZooKeeperSecurity
from controller.zookeeper.settings import ZooKeeperSettings
from controller.zookeeper.store import ZooKeeperStore
from protocol.errors import KafkaError
from tools.command_line import UsageError
from tools.config_entities import USERS, Entity
from tools.config_resources import InvalidConfigs
from tools.quota_configs import MECHANISMS, credential

T = TypeVar("T")

EMBEDDED: Final = "sqlite:"
CONNECT_TIMEOUT_MS: Final = 15_000


class StoreFailed(Exception):  # noqa: N818 - the name states the condition
    """The store cannot be used; the text says why."""


def describe_stored(address: str, security: ZooKeeperSecurity, entities: Sequence[Entity]) -> list[str]:
    """Return a line for each user with credentials. Raises UsageError, StoreFailed."""
    name = _user(entities)

    async def read() -> list[str]:
        async with _opened(address, security, is_written=False) as store:
            found = await all_overrides(store, USERS)
        lines = []
        for (user, *clients), overrides in ((entity.parts, values) for entity, values in sorted(found.items())):
            texts = [
                f"{mechanism.stored_name}=iterations={parse_credential(text).iterations}"
                for mechanism in Mechanism
                if (text := overrides.get(mechanism.stored_name)) is not None
            ]
            if texts and not clients and name in (None, user[1]):
                lines.append(f"SCRAM credential configs for user-principal '{user[1]}' are {', '.join(texts)}")
        return lines

    return _run(read)


def alter_stored(
    address: str,
    security: ZooKeeperSecurity,
    entities: Sequence[Entity],
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> str:
    """Set and delete credentials of one user; return the line to print.

    Raises UsageError, InvalidConfigs, StoreFailed.
    """
    name = _user(entities)
    if not name:
        raise UsageError("A user must be named with --entity-name to alter its SCRAM credentials")
    if others := [key for key in (*added, *deleted) if key not in MECHANISMS]:
        raise UsageError(
            f"--zookeeper changes SCRAM credentials of users only, found {', '.join(others)}; use --bootstrap-server"
        )
    made = {key: _stored(name, key, text) for key, text in added.items()}

    def edit(before: Mapping[str, str]) -> Mapping[str, str]:
        if missing := [key for key in deleted if key not in before]:
            raise InvalidConfigs(f"Invalid config(s): {','.join(missing)}")
        return {key: value for key, value in before.items() if key not in deleted} | made

    async def write() -> str:
        async with _opened(address, security, is_written=True) as store:
            await ensure_paths(store, PERSISTENT_PATHS)
            await change_overrides(store, ConfigEntity(((USERS, name),)), edit, needs_controller=False)
        return f"Completed updating config for entity: user-principal '{name}'."

    return _run(write)


def _stored(user: str, mechanism: str, text: str) -> str:
    made = credential(user, mechanism, text)
    return stored_text(Upsertion(user, made.mechanism, made.iterations, made.salt, made.salted_password))


def _user(entities: Sequence[Entity]) -> str | None:
    if [entity.type for entity in entities] != [USERS]:
        raise UsageError("--zookeeper is for SCRAM credentials of users only; use --bootstrap-server for others")
    return entities[0].name


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        return asyncio.run(work())
    except (KafkaError, OSError, StoreError, StoreUnavailable, Undecodable) as error:
        raise StoreFailed(str(error)) from error


@asynccontextmanager
async def _opened(address: str, security: ZooKeeperSecurity, *, is_written: bool) -> AsyncIterator[StateStore]:
    store: SqliteStore | ZooKeeperStore
    if address.startswith(EMBEDDED):
        path = Path(address.removeprefix(EMBEDDED))
        file = path if path.name == METADATA_FILE else path / METADATA_FILE
        if is_written:
            file.parent.mkdir(parents=True, exist_ok=True)
        elif not file.exists():
            raise StoreFailed(f"{file} does not exist, expected a broker's log directory")
        store = SqliteStore([file], SystemClock(), sleep=time.sleep)
    else:
        settings = ZooKeeperSettings(
            address, connection_timeout_ms=CONNECT_TIMEOUT_MS, security=security, set_acl=security.is_identified
        )
        store = ZooKeeperStore(settings)
    try:
        await store.open()
        yield store
    finally:
        await store.close()
