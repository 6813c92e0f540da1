"""How this side logs in to a broker: the client of each mechanism, from the options of its login module.

Owns the table of mechanisms, and which settings and options each needs. The brokers' connections to each other and the
administration tools use it. Must not know where settings are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from base.dataclass import dataclass
from base.jaas import is_true
from broker.network.sasl import gssapi, oauthbearer, plain
from broker.network.sasl.clients import PlainClient, SaslClient, ScramClient, ServerNotTrusted
from broker.network.sasl.gssapi import GssapiClient
from broker.network.sasl.oauthbearer import OauthBearerClient
from broker.network.sasl.scram import Digest
from broker.security.kerberos import KerberosError, KeyTab, Renewal, TicketSource
from broker.security.retry_pauses import RetryPauses
from broker.security.token_source import (
    SCHEMES,
    TIMEOUT_S,
    TokenRenewal,
    TokenSource,
    TokenUnavailable,
    endpoint_token,
    token_extensions,
    unsecured_token,
)

SCRAM: Mapping[str, Digest] = {digest.mechanism: digest for digest in Digest}

NewClient = Callable[[str], SaslClient]
"""Returns the client of one login to a host. May block. Raises ServerNotTrusted."""


class InvalidLoginError(Exception):
    """Settings of a login are invalid. The message states what was expected."""


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """What a login may need beside the options of its login module. Named like the properties.

    The functions return when a ticket or token is renewed, at the time of each renewal.
    """

    kerberos_service_name: str | None = None
    kerberos_renewal: Callable[[], Renewal] = Renewal
    token_endpoint_url: str | None = None
    token_renewal: Callable[[], TokenRenewal] = TokenRenewal
    token_timeout_s: float = TIMEOUT_S
    token_pauses: RetryPauses = RetryPauses()
    own_token: Callable[[], str] | None = None
    """Returns the token for OAUTHBEARER in place of an endpoint. May block and raise."""
    own_credentials: Callable[[], tuple[str, str]] | None = None
    """Returns user and password for PLAIN and SCRAM in place of the options. May block and raise."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Randomness, which must be unpredictable, and the time in milliseconds since the epoch."""

    random: Random
    now_ms: Callable[[], int]


def new_clients(
    mechanism: str, options: Mapping[str, str], settings: LoginSettings, surroundings: Surroundings
) -> NewClient:
    """Return how to log in by one of `MECHANISMS`. Raises InvalidLoginError."""
    return MECHANISMS[mechanism](mechanism, options, settings, surroundings)


def _plain(mechanism: str, options: Mapping[str, str], settings: LoginSettings, around: Surroundings) -> NewClient:
    credentials = _credentials(options, settings)
    return lambda host: PlainClient(*credentials())


def _scram(mechanism: str, options: Mapping[str, str], settings: LoginSettings, around: Surroundings) -> NewClient:
    credentials = _credentials(options, settings)
    uses_token = is_true(options.get("tokenauth"))
    digest, random = SCRAM[mechanism], around.random
    return lambda host: ScramClient(digest, *credentials(), f"{random.getrandbits(160):040x}", uses_token=uses_token)


def new_token_source(options: Mapping[str, str], settings: LoginSettings, around: Surroundings) -> TokenSource:
    """Return the tokens of a login by OAUTHBEARER. Raises InvalidLoginError."""
    url, timeout_s, own_token = settings.token_endpoint_url, settings.token_timeout_s, settings.own_token

    def now_s() -> float:
        return around.now_ms() / 1000

    def fetch() -> str:
        if own_token is not None:
            return _own_token(own_token)
        return unsecured_token(options, now_s()) if url is None else endpoint_token(url, options, timeout_s)

    if own_token is not None:
        pass
    elif url is None:
        try:
            unsecured_token(options, now_s())
        except TokenUnavailable as error:
            raise InvalidLoginError(f"{error}, or sasl.oauthbearer.token.endpoint.url") from None
    elif not url.startswith(SCHEMES):
        raise InvalidLoginError(
            f"Invalid value {url} for configuration sasl.oauthbearer.token.endpoint.url: expected an address with "
            f"{', '.join(SCHEMES)}"
        )
    elif not url.startswith("file://") and not (options.get("clientId") and options.get("clientSecret")):
        raise InvalidLoginError("expected clientId and clientSecret")
    return TokenSource(fetch, now_s, around.random.random, settings.token_renewal, settings.token_pauses)


def _oauthbearer(
    mechanism: str, options: Mapping[str, str], settings: LoginSettings, around: Surroundings
) -> NewClient:
    source, extensions = new_token_source(options, settings, around), token_extensions(options)

    def new_client(host: str) -> SaslClient:
        try:
            return OauthBearerClient(source.token(), extensions)
        except TokenUnavailable as error:
            raise ServerNotTrusted(str(error)) from error

    return new_client


def _gssapi(mechanism: str, options: Mapping[str, str], settings: LoginSettings, around: Surroundings) -> NewClient:
    service = settings.kerberos_service_name or options.get("serviceName")
    if not service:
        raise InvalidLoginError("No serviceName defined in either JAAS or sasl.kerberos.service.name")
    return kerberos_clients(service, options, settings.kerberos_renewal, around)


def kerberos_clients(
    service: str, options: Mapping[str, str], renewal: Callable[[], Renewal], around: Surroundings
) -> NewClient:
    """Return how to log in to a service by GSSAPI. Raises InvalidLoginError."""
    keys = KeyTab(options.get("principal"), options.get("keyTab")) if is_true(options.get("useKeyTab")) else None
    if keys is None and not is_true(options.get("useTicketCache")):
        raise InvalidLoginError('expected useKeyTab="true" with keyTab and principal, or useTicketCache="true"')
    try:
        tickets = TicketSource(keys, options.get("ticketCache"), around.now_ms, around.random.random, renewal)
    except KerberosError as error:
        raise InvalidLoginError(f"cannot log in by {gssapi.NAME}: {error}") from error

    def new_client(host: str) -> SaslClient:
        try:
            return GssapiClient(tickets.new_context(service, host))
        except KerberosError as error:
            raise ServerNotTrusted(str(error)) from error

    return new_client


def _own_token(token: Callable[[], str]) -> str:
    try:
        return str(token())
    except Exception as error:
        raise TokenUnavailable(f"the plug-in has no token: {error!r}") from error


def _credentials(options: Mapping[str, str], settings: LoginSettings) -> Callable[[], tuple[str, str]]:
    """Return what returns user and password at each login, or raises ServerNotTrusted. Raises InvalidLoginError."""
    own = settings.own_credentials
    if own is None:
        user, password = options.get("username"), options.get("password")
        if not user or not password:
            raise InvalidLoginError("expected username and password")
        return lambda: (user, password)

    def credentials() -> tuple[str, str]:
        try:
            user, password = own()
        except Exception as error:
            raise ServerNotTrusted(f"the plug-in has no user and password: {error!r}") from error
        return str(user), str(password)

    return credentials


MECHANISMS: Mapping[str, Callable[[str, Mapping[str, str], LoginSettings, Surroundings], NewClient]] = {
    plain.NAME: _plain,
    **dict.fromkeys(SCRAM, _scram),
    oauthbearer.NAME: _oauthbearer,
    gssapi.NAME: _gssapi,
}
"""The mechanisms that the broker and the tools have."""
