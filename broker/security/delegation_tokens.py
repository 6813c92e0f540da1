"""Delegation tokens (KIP-48, KIP-373): short-lived credentials that a user hands to its programs.

Owns: their life, their nodes in the metadata store, and the SCRAM credentials that follow from them. Must not know
requests, or who may see the tokens of others.

A token's HMAC is its password. It follows from the secret of the cluster and the token's id, and is never stored:

    /delegation_token/tokens/ID                      owner, requester, renewers and times
    /delegation_token/token_changes/token_change_N   the id of a token that has changed
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from urllib.parse import quote, unquote

from base.clock import Clock
from base.dataclass import dataclass
from broker.loop.in_order import InOrder
from broker.network.sasl.exchange import Login
from broker.network.sasl.scram import ITERATIONS_MIN, Digest, ScramCredential, ScramUser
from controller.store.state_store import Create, DataTooLarge, Delete, NoNode, SetData, StateStore
from controller.tree.change_notifications import ChangeListener
from controller.tree.paths import DELEGATION_TOKENS, Undecodable
from controller.tree.registration import ensure_paths
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import id_text, random_id

logger = logging.getLogger("kafka.server.DelegationTokenManager")

ROOT, TOKENS, CHANGES = "/delegation_token", DELEGATION_TOKENS, "/delegation_token/token_changes"
_CHANGE = f"{CHANGES}/token_change_"
_FORMAT_VERSION = 3
_SALT_SIZE = 26
TIME_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """`delegation.token.max.lifetime.ms` and `delegation.token.expiry.time.ms`."""

    lifetime_ms_max: int
    expiry_ms: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token. Principals are written `Type:name`, times in milliseconds since the epoch."""

    token_id: str
    owner: str
    requester: str
    renewers: Sequence[str]
    issued_ms: int
    expires_ms: int
    ends_ms: int
    """After this time it cannot be renewed."""

    def belongs_to(self, principal: str) -> bool:
        """Return whether a principal may renew and end it."""
        return principal in (self.owner, self.requester, *self.renewers)


class DelegationTokens:
    """The tokens of the cluster, as one broker keeps them."""

    def __init__(self, store: StateStore, clock: Clock, random: Random, secret: str | None, times: TokenTimes) -> None:
        """Without `secret` there are no tokens."""
        self._store = store
        self._clock = clock
        self._random = random
        self._secret = None if secret is None else secret.encode()
        self._times = times
        self._known: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        """By HMAC, by which requests name a token."""
        self._credentials: dict[tuple[str, Digest], ScramCredential] = {}
        self._reading = InOrder()
        """Keeps reads, writes and effects in one order: an older read of all tokens must not undo a newer change."""
        self._listener = ChangeListener(store, CHANGES, self._changed)

    @property
    def is_enabled(self) -> bool:
        return self._secret is not None

    @property
    def known(self) -> Sequence[DelegationToken]:
        return list(self._known.values())

    async def start(self) -> None:
        """Read all tokens and follow their changes. May be called again, in a new session with the store."""
        if not self.is_enabled:
            return
        await ensure_paths(self._store, (ROOT, CHANGES, TOKENS))
        await self._listener.start()
        async with self._reading:
            names = await self._store.children(TOKENS)
            nodes = await self._store.get_many([f"{TOKENS}/{name}" for name in names])
            self._known.clear()
            self._ids.clear()
            self._credentials.clear()
            for name, node in zip(names, nodes, strict=True):
                self._put(name, None if node is None else node.data)

    def stop(self) -> None:
        self._listener.stop()

    def user(self, token_id: str, digest: Digest) -> ScramUser | None:
        """Return the user that a token logs in, or None if it does not exist or has expired."""
        token = self._known.get(token_id)
        if token is None or self._is_expired(token):
            return None
        credential = self._credentials.get((token_id, digest))
        if credential is None:
            credential = self._credentials[token_id, digest] = self._credential(token_id, digest)
        _, _, owner = token.owner.partition(":")
        return ScramUser(credential, Login(owner, token.expires_ms, is_by_token=True))

    def hmac_of(self, token: DelegationToken) -> bytes:
        assert self._secret is not None, "tokens exist only with a secret"
        return hmac.digest(self._secret, token.token_id.encode(), "sha512")

    async def create(self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int) -> DelegationToken:
        """Raises KafkaError."""
        self._require_enabled()
        now_ms = self._clock.now_ms()
        longest_ms = self._times.lifetime_ms_max
        ends_ms = min(now_ms + (longest_ms if lifetime_ms <= 0 else min(lifetime_ms, longest_ms)), TIME_MAX)
        token_id = id_text(random_id(self._random.getrandbits))
        expires_ms = min(ends_ms, now_ms + self._times.expiry_ms)
        token = DelegationToken(token_id, owner, requester, renewers, now_ms, expires_ms, ends_ms)
        async with self._reading:
            try:
                await self._store.multi([Create(f"{TOKENS}/{token_id}", encode_token(token)), self._notice(token_id)])
            except DataTooLarge as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{len(renewers)} renewers exceed 1 MB.") from error
            self._keep(token)
        logger.info("created the delegation token %s of %s", token_id, owner)
        return token

    async def renew(self, principal: str, token_hmac: bytes, period_ms: int) -> int:
        """Return when the token expires now. Raises KafkaError."""
        token = self._owned(principal, token_hmac)
        if self._is_expired(token):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return await self._set_expiry(token, self._times.expiry_ms if period_ms < 0 else period_ms)

    async def expire(self, principal: str, token_hmac: bytes, period_ms: int) -> int:
        """Return when the token expires now; a negative period removes it. Raises KafkaError."""
        token = self._owned(principal, token_hmac)
        if period_ms < 0:
            await self._remove(token)
            return self._clock.now_ms()
        if self._is_expired(token):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return await self._set_expiry(token, period_ms)

    async def remove_expired(self) -> None:
        for token in self.known:
            if self._is_expired(token):
                await self._remove(token)

    def _require_enabled(self) -> None:
        if not self.is_enabled:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def _owned(self, principal: str, token_hmac: bytes) -> DelegationToken:
        self._require_enabled()
        token = self._known.get(self._ids.get(token_hmac, ""))
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not token.belongs_to(principal):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _is_expired(self, token: DelegationToken) -> bool:
        return self._clock.now_ms() > min(token.expires_ms, token.ends_ms)

    async def _set_expiry(self, token: DelegationToken, period_ms: int) -> int:
        changed = replace(token, expires_ms=min(token.ends_ms, self._clock.now_ms() + period_ms))
        path = f"{TOKENS}/{token.token_id}"
        async with self._reading:
            try:
                await self._store.multi([SetData(path, encode_token(changed)), self._notice(token.token_id)])
            except NoNode as error:
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from error
            self._keep(changed)
        return changed.expires_ms

    async def _remove(self, token: DelegationToken) -> None:
        async with self._reading:
            try:
                await self._store.multi([Delete(f"{TOKENS}/{token.token_id}"), self._notice(token.token_id)])
            except NoNode:
                logger.debug("the delegation token %s is removed already", token.token_id)
            self._put(token.token_id, None)

    def _notice(self, token_id: str) -> Create:
        return Create(_CHANGE, token_id.encode(), sequential=True)

    async def _changed(self, data: bytes | None) -> None:
        token_id = (data or b"").decode("utf-8", "replace")
        async with self._reading:
            (node,) = await self._store.get_many([f"{TOKENS}/{token_id}"])
            self._put(token_id, None if node is None else node.data)

    def _keep(self, token: DelegationToken) -> None:
        self._known[token.token_id] = token
        self._ids[self.hmac_of(token)] = token.token_id

    def _put(self, token_id: str, data: bytes | None) -> None:
        known = self._known.pop(token_id, None)
        if known is not None:
            del self._ids[self.hmac_of(known)]
        if data is None:
            for digest in Digest:
                self._credentials.pop((token_id, digest), None)
            return
        try:
            self._keep(decode_token(token_id, data))
        except Undecodable as error:
            logger.error("ignoring a delegation token: %s", error)

    def _credential(self, token_id: str, digest: Digest) -> ScramCredential:
        password = b64encode(self.hmac_of(self._known[token_id]))
        salt = self._random.randbytes(_SALT_SIZE)
        salted = hashlib.pbkdf2_hmac(digest.value, password, salt, ITERATIONS_MIN)
        client_key = hmac.digest(salted, b"Client Key", digest.value)
        stored_key = hashlib.new(digest.value, client_key).digest()
        return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", digest.value), ITERATIONS_MIN)


def encode_token(token: DelegationToken) -> bytes:
    """Return the data of a token's node."""
    members = {
        "version": _FORMAT_VERSION,
        "owner": quote(token.owner, safe=""),
        "tokenRequester": quote(token.requester, safe=""),
        "renewers": [quote(renewer, safe="") for renewer in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.ends_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(members, separators=(",", ":")).encode()


def decode_token(token_id: str, data: bytes) -> DelegationToken:
    """Return the token of a node. Raises Undecodable."""
    try:
        members = json.loads(data)
        owner = unquote(members["owner"])
        return DelegationToken(
            token_id,
            owner,
            unquote(members["tokenRequester"]) if "tokenRequester" in members else owner,
            [unquote(renewer) for renewer in members["renewers"]],
            int(members["issueTimestamp"]),
            int(members["expiryTimestamp"]),
            int(members["maxTimestamp"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Undecodable(f"{TOKENS}/{token_id}: {error!r}") from error
