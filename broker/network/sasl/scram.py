"""SASL/SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677): the client proves its password without sending it.

Owns the messages and the proof. Must not know where credentials are stored. The exchange:

    client-first  n,,n=user,r=clientnonce                    extension of Kafka: ,tokenauth=true
    server-first  r=clientnonce+servernonce,s=salt,i=iterations
    client-final  c=biws,r=clientnonce+servernonce,p=proof
    server-final  v=signature

A user without a credential goes through the same steps with a decoy, so neither steps nor times reveal whether a user
exists to one who asks one broker: the secret that makes decoys is that of the broker's process.

librdkafka before 2.6.1 repeats the client's nonce: `r=clientnonce+clientnonce+servernonce`. Kafka 3.9 accepts that, and
so does this. Every other nonce is rejected (CVE-2024-56128).
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from enum import Enum

from base.dataclass import dataclass
from broker.network.sasl.exchange import AuthenticationFailed, InvalidCredentials, Login, Step

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384

_NAME = r"(?:[^\x00,=]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^\x00,]*)*"
_CLIENT_FIRST = (
    rf"(?P<header>[ny],(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = (
    rf"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),"
    r"p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_USUAL_HEADER = "n,,"


class Digest(Enum):
    """The mechanisms; a value is the name of the hash function."""

    SCRAM_SHA_256 = "sha256"
    SCRAM_SHA_512 = "sha512"

    @property
    def mechanism(self) -> str:
        return self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUser:
    """A user who may log in: the credential and the principal."""

    credential: ScramCredential
    login: Login


Lookup = Callable[[str, bool], ScramUser | None]
"""Returns the user of a name or, with True, of the id of a delegation token; None if there is none."""


class ScramExchange:
    """`Exchange` of two tokens."""

    def __init__(self, digest: Digest, lookup: Lookup, server_nonce: str, secret: bytes) -> None:
        """`server_nonce` must be new and unpredictable. `secret` makes decoys that stay the same for a user."""
        self._digest = digest.value
        self._lookup = lookup
        self._server_nonce = server_nonce
        self._secret = secret
        self._client_nonce = ""
        self._header = ""
        self._signed = ""
        self._name = ""
        self._is_by_token = False
        self._credential: ScramCredential | None = None

    def evaluate(self, token: bytes) -> Step:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise InvalidCredentials("the message is not UTF-8") from None
        return self._first(text) if self._credential is None else self._final(text, self._credential)

    def _first(self, text: str) -> Step:
        message = re.fullmatch(_CLIENT_FIRST, text)
        if message is None:
            raise InvalidCredentials("the first client message is malformed")
        name = _decoded_name(message["user"])
        authorization_id = message["authorization_id"]
        if authorization_id is not None and _decoded_name(authorization_id) != name:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._name, self._is_by_token = name, ",tokenauth=true" in message["extensions"].lower()
        user = self._lookup(name, self._is_by_token)
        credential = self._credential = self._decoy(name) if user is None else user.credential
        self._client_nonce, self._header = message["nonce"], message["header"]
        salt = b64encode(credential.salt).decode()
        server_first = f"r={self._client_nonce}{self._server_nonce},s={salt},i={credential.iterations}"
        self._signed = f"{message['bare']},{server_first}"
        return Step(server_first.encode())

    def _final(self, text: str, credential: ScramCredential) -> Step:
        message = re.fullmatch(_CLIENT_FINAL, text)
        if message is None:
            raise InvalidCredentials("the final client message is malformed")
        nonce = self._client_nonce + self._server_nonce
        if message["nonce"] not in (nonce, self._client_nonce + nonce):
            raise InvalidCredentials("the nonce of the final client message is not the one of this exchange")
        if _decoded(message["binding"]) not in (self._header.encode(), _USUAL_HEADER.encode()):
            raise InvalidCredentials("the client asks for channel binding, which is not available")
        signed = f"{self._signed},{message['without_proof']}".encode()
        client_signature = hmac.digest(credential.stored_key, signed, self._digest)
        proof = _decoded(message["proof"])
        if len(proof) != len(client_signature):
            raise InvalidCredentials("the proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, client_signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), credential.stored_key)
        # Between the two messages the credential may have been removed or changed.
        user = self._lookup(self._name, self._is_by_token)
        if not is_right or user is None or user.credential != credential:
            raise InvalidCredentials("the proof is wrong, or the user has no credential")
        signature = b64encode(hmac.digest(credential.server_key, signed, self._digest))
        return Step(b"v=" + signature, user.login)

    def _decoy(self, name: str) -> ScramCredential:
        salt = hmac.digest(self._secret, name.encode(), "sha256")[:26]
        size = hashlib.new(self._digest).digest_size
        return ScramCredential(salt, stored_key=bytes(size), server_key=bytes(size), iterations=ITERATIONS_MIN)


def _decoded_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidCredentials("a value is not base64") from None
