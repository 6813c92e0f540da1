"""Describes and changes the SCRAM credentials in the metadata store (KIP-554), and keeps them in memory for logins.

Owns: the mechanisms, their bounds, the stored text, and which credentials are in force. Must not know: response
layouts, or how a client proves that it knows a password. The salted password itself is never stored. The node of a
user also holds quotas, which stay unchanged.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum

from base.dataclass import dataclass
from broker.loop.in_order import InOrder
from broker.loop.slices import SlicedWork
from broker.network.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential
from controller.store.state_store import NOT_NAMES_OF_NODES, StateStore
from controller.tree.entity_configs import all_overrides, change_overrides, entity_overrides
from controller.tree.paths import ConfigEntity
from protocol.errors import ErrorCode, KafkaError, without_frames

logger = logging.getLogger("kafka.security.CredentialProvider")

_USERS = "users"


class Mechanism(Enum):
    """(number in requests, digest); the member's value in the store is its `stored_name`."""

    SCRAM_SHA_256 = (1, "sha256")
    SCRAM_SHA_512 = (2, "sha512")

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def digest(self) -> str:
        return self.value[1]

    @property
    def stored_name(self) -> str:
        return self.name.replace("_", "-")


MECHANISMS: Mapping[int, Mechanism] = {mechanism.number: mechanism for mechanism in Mechanism}

Iterations = dict[Mechanism, int]


@dataclass(frozen=True, slots=True)
class Deletion:
    """A credential to delete. `mechanism` may be any number."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A credential to set. `mechanism` may be any number."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramCredentials:
    """The SCRAM credentials as one broker describes and changes them."""

    def __init__(self, store: StateStore, sliced_work: SlicedWork) -> None:
        self._store = store
        self._sliced_work = sliced_work
        self._in_force: dict[str, dict[str, ScramCredential]] = {}
        self._reading = InOrder()
        """Keeps reads and their effects in one order: an older read of all users must not undo a newer one."""

    def credential(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return the credential that `user` logs in with, or None."""
        return self._in_force.get(user, {}).get(mechanism)

    async def load(self) -> None:
        """Read the credentials of all users; those that are no longer stored are void."""
        async with self._reading:
            stored = await self._overrides()
            self._in_force.clear()
            for user, overrides in stored.items():
                self._put_in_force(user, overrides)

    async def apply(self, entity: ConfigEntity) -> None:
        """Read the credentials of an entity whose settings have changed. Has no effect if it is not a user."""
        ((entity_type, user), *of_user) = entity.parts
        if entity_type == _USERS and user is not None and not of_user:
            async with self._reading:
                self._put_in_force(user, await entity_overrides(self._store, entity))

    def _put_in_force(self, user: str, overrides: Mapping[str, str]) -> None:
        found = {}
        for mechanism in Mechanism:
            text = overrides.get(mechanism.stored_name)
            if text is not None:
                try:
                    found[mechanism.stored_name] = parse_credential(text)
                except ValueError as error:
                    logger.error("user %r cannot log in with %s: %s", user, mechanism.stored_name, error)
        self._in_force.pop(user, None)
        if found:
            self._in_force[user] = found

    async def describe(self, users: Sequence[str]) -> dict[str, Iterations | KafkaError]:
        """Return one result per user of `users`; if it is empty, the credentials of all users that have one."""
        stored = {
            user: credentials
            for user, overrides in (await self._overrides()).items()
            if (credentials := _iterations(overrides))
        }
        if not users:
            return dict(sorted(stored.items()))
        return {user: _described(user, count, stored) for user, count in Counter(users).items()}

    async def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> dict[str, KafkaError | None]:
        """Change credentials; return one result per user, None for success. As in Kafka, failed users come first.

        Either all changes of a user are made, or none.
        """
        by_user: dict[str, list[Deletion | Upsertion]] = {}
        changes: list[Deletion | Upsertion] = [*upsertions, *deletions]
        for change in changes:
            by_user.setdefault(change.user, []).append(change)
        results: dict[str, KafkaError | None] = {}
        pause = self._sliced_work.pause
        for user, of_user in by_user.items():
            await pause()
            try:
                _check(of_user)
                await self._alter_user(user, of_user)
                results[user] = None
            except KafkaError as error:
                results[user] = without_frames(error)
        return dict(sorted(results.items(), key=lambda result: result[1] is None))

    async def _alter_user(self, user: str, changes: Sequence[Deletion | Upsertion]) -> None:
        def edit(before: Mapping[str, str]) -> Mapping[str, str]:
            after = dict(before)
            for change in changes:
                name = MECHANISMS[change.mechanism].stored_name
                if isinstance(change, Upsertion):
                    after[name] = stored_text(change)
                elif after.pop(name, None) is None:
                    raise KafkaError(
                        ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                    )
            return after

        entity = ConfigEntity(((_USERS, user),))
        await change_overrides(self._store, entity, edit)
        # The notification would have the same effect, but possibly after the user's next login.
        await self.apply(entity)

    async def _overrides(self) -> dict[str, dict[str, str]]:
        """What is set for each user, without their clients and the default."""
        return {
            name: overrides
            for entity, overrides in (await all_overrides(self._store, _USERS)).items()
            if len(entity.parts) == 1 and (name := entity.parts[0][1]) is not None
        }


def parse_credential(text: str) -> ScramCredential:
    """Return the credential of a stored text. Raises ValueError, whose message does not repeat the text."""
    members = {name: value for name, _, value in (pair.partition("=") for pair in text.split(","))}
    try:
        return ScramCredential(
            b64decode(members["salt"], validate=True),
            b64decode(members["stored_key"], validate=True),
            b64decode(members["server_key"], validate=True),
            int(members["iterations"]),
        )
    except (KeyError, ValueError):
        raise ValueError("the stored credential is malformed, set the password again") from None


def stored_text(credential: Upsertion) -> str:
    """What is kept of a password (RFC 5802: StoredKey and ServerKey). The mechanism is known."""
    digest = MECHANISMS[credential.mechanism].digest
    client_key = hmac.digest(credential.salted_password, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    server_key = hmac.digest(credential.salted_password, b"Server Key", digest)
    return credential_text(ScramCredential(credential.salt, stored_key, server_key, credential.iterations))


def credential_text(credential: ScramCredential) -> str:
    """Return the stored text of a credential, which `parse_credential` reads."""
    members = {
        "salt": b64encode(credential.salt).decode(),
        "stored_key": b64encode(credential.stored_key).decode(),
        "server_key": b64encode(credential.server_key).decode(),
        "iterations": str(credential.iterations),
    }
    return ",".join(f"{name}={value}" for name, value in members.items())


def _check(changes: Sequence[Deletion | Upsertion]) -> None:
    """What is wrong with the changes of one user whatever is stored. Raises KafkaError."""
    for change in changes:
        _check_one(change)
    if len({change.mechanism for change in changes}) != len(changes):
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def _check_one(change: Deletion | Upsertion) -> None:
    if not change.user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.user in NOT_NAMES_OF_NODES:
        problem = f"Invalid username '{change.user}': no node of the store can have it as its name."
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
    if change.mechanism not in MECHANISMS:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, Upsertion):
        if not change.salt or not change.salted_password:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")
        if change.iterations < ITERATIONS_MIN:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if change.iterations > ITERATIONS_MAX:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def _described(user: str, times_asked: int, stored: Mapping[str, Iterations]) -> Iterations | KafkaError:
    if times_asked > 1:
        return KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    if not user:
        return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
    if user not in stored:
        return KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {user}"
        )
    return stored[user]


def _iterations(overrides: Mapping[str, str]) -> Iterations:
    """Iterations by mechanism. A text that does not say them, written by hand, is passed over."""
    found = {}
    for mechanism in Mechanism:
        text = overrides.get(mechanism.stored_name, "")
        members = {name: value for name, _, value in (pair.partition("=") for pair in text.split(","))}
        if members.get("iterations", "").isdecimal():
            found[mechanism] = int(members["iterations"])
    return found
