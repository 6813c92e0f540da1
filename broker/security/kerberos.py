"""Kerberos by the library of the machine, through the Python package `gssapi` (RFC 2743, RFC 4121).

Owns credentials of both sides, the renewal of tickets, and the translation of errors. Must not know SASL messages or
settings. The package is imported when a listener or a login needs it: it is optional, because it has to be compiled.

The library reads `krb5.conf` from the path in the environment variable KRB5_CONFIG, and `/etc/krb5.conf` without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from base.dataclass import dataclass
from broker.network.sasl.gssapi import GssFailed, SecurityContext

HOW_TO_INSTALL = (
    "it needs the Python package gssapi: apt-get install gcc python3-dev libkrb5-dev, then "
    "`.venv/bin/python -m pip install --require-hashes -r requirements-kerberos.lock` in the folder of the broker "
    "(or pip install 'milena-broker[kerberos]')"
)
_ANY_PRINCIPAL = "*"


class KerberosError(Exception):
    """Kerberos is not installed, or its credentials cannot be used. The message states what was expected."""


@dataclass(frozen=True, slots=True)
class KeyTab:
    """Where the keys of a principal are."""

    principal: str | None
    """None, or `*`: any whose key is in the file."""
    path: str | None
    """None: the default file of the library."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """When a ticket is renewed, named like the properties."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    relogin_ms_min: int = 60_000


def new_acceptor(keys: KeyTab) -> Callable[[], SecurityContext]:
    """Return how a server makes a context for each client. Raises KerberosError."""
    gssapi = _library()
    store = None if keys.path is None else {"keytab": f"FILE:{keys.path}"}
    try:
        credentials = gssapi.Credentials(
            name=_name(keys.principal), usage="accept", mechs=[gssapi.MechType.kerberos], store=store
        )
    except gssapi.exceptions.GSSError as error:
        raise KerberosError(
            f"no key of {keys.principal or 'any principal'} in {keys.path or 'the default keytab'}: {_text(error)}"
        ) from error
    return lambda: _Context(gssapi.SecurityContext(creds=credentials, usage="accept"))


def default_realm() -> str:
    """Return the default realm of this machine; empty if it has none. Raises KerberosError."""
    gssapi = _library()
    try:
        name = gssapi.Name("x", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)
    except gssapi.exceptions.GSSError:
        return ""
    return str(name).rpartition("@")[2]


class TicketSource:
    """The ticket of a principal that logs in to servers: from its keytab, or from a cache that `kinit` has filled."""

    def __init__(
        self,
        keys: KeyTab | None,
        cache: str | None,
        now_ms: Callable[[], int],
        uniform: Callable[[], float],
        renewal: Callable[[], Renewal],
    ) -> None:
        """`keys` None: the ticket is in `cache`, or in the default cache.

        `now_ms` may be of any clock, and `uniform()` returns a number from 0 to 1. `renewal()` is called
        for each ticket. Raises KerberosError.
        """
        self._gssapi = _library()
        self._keys = keys
        self._cache = cache
        self._now_ms = now_ms
        self._uniform = uniform
        self._renewal = renewal
        self._credentials: Any = None
        self._renew_at_ms = 0
        self._turn = 0

    def new_context(self, service: str, host: str) -> SecurityContext:
        """Return a context for one login to a service. Blocks while it asks a key distribution center.

        Raises KerberosError.
        """
        gssapi = self._gssapi
        try:
            target = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
            flags = gssapi.RequirementFlag.mutual_authentication
            return _Context(
                gssapi.SecurityContext(
                    name=target, creds=self._ticket(), mech=gssapi.MechType.kerberos, flags=flags, usage="initiate"
                )
            )
        except gssapi.exceptions.GSSError as error:
            raise KerberosError(f"no ticket for {service}@{host}: {_text(error)}") from error

    def _ticket(self) -> Any:
        """Return the present ticket, or a new one after the configured share of its life."""
        now_ms = self._now_ms()
        if self._credentials is not None and now_ms < self._renew_at_ms:
            return self._credentials
        gssapi = self._gssapi
        if self._keys is None:
            # The owner of the cache renews what is in it.
            return gssapi.Credentials(usage="initiate", store=self._cache and {"ccache": f"FILE:{self._cache}"})
        # The library keeps a ticket until half of its life is over, so the next one goes to the other of two caches.
        # Caches outlive this object, and its id may return: the principal in the name keeps tickets of others out.
        store = {"ccache": f"MEMORY:milena-{self._keys.principal}-{id(self)}-{self._turn}"}
        if self._keys.path is not None:
            store["client_keytab"] = f"FILE:{self._keys.path}"
        credentials = gssapi.Credentials(name=_name(self._keys.principal), usage="initiate", store=store)
        lifetime_ms = (credentials.lifetime or 0) * 1000
        renewal = self._renewal()
        share = renewal.window_factor + renewal.window_jitter * self._uniform()
        self._renew_at_ms = now_ms + max(round(lifetime_ms * share), min(renewal.relogin_ms_min, lifetime_ms))
        self._credentials = credentials
        self._turn ^= 1
        return credentials


class _Context:
    """`SecurityContext` of the library."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._errors = _library().exceptions.GSSError
        context.__DEFER_STEP_ERRORS__ = False

    @property
    def is_established(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes | None:
        return self._call(lambda: self._context.step(token)) or None

    def peer(self) -> str:
        return str(self._call(lambda: self._context.initiator_name))

    def wrap(self, message: bytes) -> bytes:
        return bytes(self._call(lambda: self._context.wrap(message, False).message))

    def unwrap(self, token: bytes) -> bytes:
        return bytes(self._call(lambda: self._context.unwrap(token).message))

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._errors as error:
            raise GssFailed(_text(error)) from error


def _name(principal: str | None) -> Any:
    gssapi = _library()
    if principal in (None, _ANY_PRINCIPAL):
        return None
    return gssapi.Name(principal, gssapi.NameType.kerberos_principal)


def _library() -> Any:
    """Import the package, and the library of the machine with it. Raises KerberosError."""
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise KerberosError(HOW_TO_INSTALL) from error
    return gssapi


def _text(error: Exception) -> str:
    return " ".join(str(error).split())
