"""TLS contexts, by the standard library's `ssl`.

Owns the use of `ssl`: versions, cipher suites, client authentication, and a handshake in memory that shows whether an
identity and a trust fit together. Must not know stores or settings. Keys never touch a disk in clear text: OpenSSL
reads them from an anonymous file in memory, or, where the system has none, from a temporary file that is encrypted with
a random password.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Sequence
from enum import Enum

from base.dataclass import dataclass
from base.system_calls import PROC_DESCRIPTORS, SYSTEM_CALLS

VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
HANDSHAKE_TIMEOUT_S = 30.0
"""How long a client may take for its handshake before its connection closes."""
SHUTDOWN_TIMEOUT_S = 2.0

_WEAK_IDENTITY_REASONS = ("CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL", "EE_KEY_TOO_SMALL")
_TLS_1_3_SUITE = r"TLS_(AES|CHACHA20)_"
_BLOCK_SUITE = r"AES_([0-9]+)_CBC"
_PRIVATE_KEY = rb"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----\n?"


ServerContext = ssl.SSLContext
ClientContext = ssl.SSLContext
"""Contexts of listeners and of clients, for modules that only hand them on."""


class ClientAuth(Enum):
    """`ssl.client.auth`: whether a client presents a certificate."""

    NONE = ssl.CERT_NONE
    REQUESTED = ssl.CERT_OPTIONAL
    REQUIRED = ssl.CERT_REQUIRED


class TlsError(ValueError):
    """A context cannot be made. The message states what is wrong."""


class WeakIdentityError(TlsError):
    """A certificate of the identity is below OpenSSL's security level 2: signed with SHA-1, or with a short key."""


class NotAuthenticated(Exception):  # noqa: N818 - the name states the condition
    """A client has completed its handshake and is not let in. The message states why."""


@dataclass(frozen=True, slots=True)
class TlsParameters:
    """What is the same for both sides."""

    versions: Sequence[str]
    """`ssl.enabled.protocols`."""
    suites: Sequence[str] = ()
    """`ssl.cipher.suites`, in Java's names; empty: the library's choice."""


@dataclass(slots=True)
class TlsListener:
    """The TLS side of one listener. The context may be replaced; open connections keep theirs."""

    context: ServerContext
    name_in: Callable[[bytes], str]
    """Returns the name in a client certificate in DER. Raises NotAuthenticated."""
    failure_count: int = 0
    """Handshakes that failed, and clients that were not let in."""


def server_context(
    identity: bytes,
    trusted: str | None,
    client_auth: ClientAuth,
    parameters: TlsParameters,
    *,
    accepts_weak_identity: bool = False,
) -> ssl.SSLContext:
    """Return the context of a listener. Raises TlsError; WeakIdentityError unless `accepts_weak_identity`.

    `identity` is a private key with its certificate chain, `trusted` certificates; both in PEM. Without `trusted`
    the certificates of the operating system are used. `accepts_weak_identity` also accepts weak certificates of
    clients, because OpenSSL has one security level for both.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if accepts_weak_identity:
        suites = [suite["name"] for suite in context.get_ciphers() if not re.match(_TLS_1_3_SUITE, suite["name"])]
        context.set_ciphers(":".join([*suites, "@SECLEVEL=0"]))
    _configure(context, identity, trusted, parameters)
    if trusted is None and client_auth is not ClientAuth.NONE:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.VerifyMode(client_auth.value)
    return context


def client_context(
    identity: bytes | None, trusted: str | None, parameters: TlsParameters, *, checks_host: bool
) -> ssl.SSLContext:
    """Return the context of a client; see `server_context`. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host
    _configure(context, identity, trusted, parameters)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def check_handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Perform a handshake in memory. Raises TlsError if it fails."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_side=False, server_hostname="localhost"),
    ]
    for _ in range(10):
        is_done = True
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                is_done = False
            except ssl.SSLError as error:
                raise TlsError(f"a handshake with the new store fails: {error.reason or error}") from error
        if is_done:
            return
    raise TlsError("a handshake with the new store does not end")


def _configure(context: ssl.SSLContext, identity: bytes | None, trusted: str | None, parameters: TlsParameters) -> None:
    older = [name for suite in parameters.suites if (name := openssl_name(suite))]
    _limit_versions(context, parameters, has_older=bool(older))
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    for name in older:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise TlsError(f"the cipher suite {name} is unknown, or not supported") from None
    try:
        if older:
            context.set_ciphers(":".join(older))
        if identity is not None:
            _load_identity(context, identity)
        if trusted is not None:
            context.load_verify_locations(cadata=trusted)
    except ssl.SSLError as error:
        if error.reason in _WEAK_IDENTITY_REASONS:
            reason = error.reason.replace("_", " ").lower()
            raise WeakIdentityError(
                f"OpenSSL rejects a certificate ({reason}), expected signatures with SHA-256 and keys of 2048 bits"
            ) from error
        raise TlsError(str(error)) from error
    except ValueError as error:
        raise TlsError(str(error)) from error


def _limit_versions(context: ssl.SSLContext, parameters: TlsParameters, *, has_older: bool) -> None:
    """Enable the versions that are wanted and have one of the wanted suites. Raises TlsError."""
    versions = [_version(name) for name in parameters.versions]
    if not versions:
        raise TlsError("no version of TLS is enabled")
    if parameters.suites:
        has_1_3 = any(re.match(_TLS_1_3_SUITE, suite) for suite in parameters.suites)
        versions = [one for one in versions if (has_1_3 if one is ssl.TLSVersion.TLSv1_3 else has_older)]
        if not versions:
            raise TlsError(
                f"none of the cipher suites {', '.join(parameters.suites)} is one of {', '.join(parameters.versions)}"
            )
    between = [name for name, one in VERSIONS.items() if min(versions) < one < max(versions) and one not in versions]
    if between:
        raise TlsError(f"versions of TLS without {between[0]} cannot be enabled, expected versions without a gap")
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _version(name: str) -> ssl.TLSVersion:
    try:
        return VERSIONS[name]
    except KeyError:
        raise TlsError(f"{name} is unknown, expected some of {', '.join(VERSIONS)}") from None


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite; empty for suites of TLS 1.3, which are always enabled."""
    if re.match(_TLS_1_3_SUITE, suite):
        return ""
    name = re.sub(_BLOCK_SUITE, r"AES\1", suite.removeprefix("TLS_").removeprefix("RSA_WITH_").replace("_WITH_", "_"))
    return (
        re.sub(r"AES_([0-9]+)", r"AES\1", name)
        .replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
        .replace("_", "-")
    )


def _load_identity(context: ssl.SSLContext, identity: bytes) -> None:
    if not SYSTEM_CALLS.has_memory_files:
        _load_encrypted(context, identity)
        return
    descriptor = os.memfd_create("milena-identity")
    try:
        os.write(descriptor, identity)
        context.load_cert_chain(f"{PROC_DESCRIPTORS}/{descriptor}")
    finally:
        os.close(descriptor)


def _load_encrypted(context: ssl.SSLContext, identity: bytes) -> None:
    from tempfile import NamedTemporaryFile  # on demand: only some systems need these

    from cryptography.hazmat.primitives import serialization

    password = os.urandom(32).hex().encode()
    key = serialization.load_pem_private_key(identity, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )
    with NamedTemporaryFile(prefix="milena-identity-") as file:  # other users cannot read it
        file.write(key + re.sub(_PRIVATE_KEY, b"", identity))
        file.flush()
        context.load_cert_chain(file.name, password=password)
