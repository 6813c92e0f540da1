"""The access tokens with which this side logs in by OAUTHBEARER, and when they are renewed.

Owns where a token comes from: an identity provider's token endpoint (RFC 6749, 4.4), a file, or, for development, an
unsigned token made here. Must not know SASL messages. A request to an identity provider blocks.
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode

from base.dataclass import dataclass
from broker.network.sasl.oauthbearer import InvalidToken
from broker.security.retry_pauses import RetryPauses
from broker.security.web_tokens import TOKEN_SIZE_MAX, token_claims

if TYPE_CHECKING:
    from urllib.error import HTTPError

SCHEMES = ("https://", "http://", "file://")
TIMEOUT_S = 10.0

_ERROR_SIZE_MAX = 200
logger = logging.getLogger("kafka.security.oauthbearer.TokenSource")
_UNSECURED = "unsecuredLogin"
_LIFETIME_S = 3600.0


class TokenUnavailable(Exception):  # noqa: N818 - the name states the condition
    """There is no token. The message names its source and the reason, and no secret."""


@dataclass(frozen=True, slots=True)
class TokenRenewal:
    """When a token is renewed, named like the properties `sasl.login.refresh.*`."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    period_s_min: int = 60
    buffer_s: int = 300

    def due_s(self, issued_s: float, expires_s: float, random_share: float) -> float:
        """Return the time from which a token is renewed; `random_share` is from 0 to 1."""
        life_s = expires_s - issued_s
        due_s = issued_s + life_s * (self.window_factor + self.window_jitter * random_share)
        if life_s < self.period_s_min + self.buffer_s:
            return due_s
        return min(max(due_s, issued_s + self.period_s_min), expires_s - self.buffer_s)


class TokenSource:
    """Keeps a token until it has to be renewed, and after a failed renewal as long as it is valid."""

    def __init__(
        self,
        fetch: Callable[[], str],
        now_s: Callable[[], float],
        uniform: Callable[[], float],
        renewal: Callable[[], TokenRenewal],
        pauses: RetryPauses,
    ) -> None:
        """`fetch()` returns a new token, or raises TokenUnavailable. `now_s()` is in seconds since the epoch.

        `renewal()` is called for each token. `pauses` are those after failed attempts to fetch one: until they are
        over, nothing is fetched.
        """
        self._fetch = fetch
        self._now_s = now_s
        self._uniform = uniform
        self._renewal = renewal
        self._token = ""
        self.expires_s = 0.0
        """When the present token expires, in seconds since the epoch."""
        self._renew_at_s = 0.0
        self._pauses = pauses
        self._failure_count = 0
        self._failure = ""
        self._retry_at_s = 0.0

    def token(self) -> str:
        """Return a token. Blocks while it fetches one. Raises TokenUnavailable."""
        now_s = self._now_s()
        if (not self._token or now_s >= self._renew_at_s) and now_s >= self._retry_at_s:
            try:
                self._renew(now_s)
            except TokenUnavailable as error:
                self._failure_count += 1
                self._failure = str(error)
                self._retry_at_s = self._now_s() + self._pauses.after(self._failure_count) / 1000
                if now_s < self.expires_s:
                    logger.warning("the present token stays in use: %s", error)
        if now_s >= self.expires_s:
            raise TokenUnavailable(self._failure)
        return self._token

    def _renew(self, now_s: float) -> None:
        """Fetch a token. Raises TokenUnavailable."""
        token = self._fetch()
        try:
            expires_s = token_claims(token).get("exp")
        except InvalidToken as error:
            raise TokenUnavailable(f"the token that was issued is invalid: {error}") from None
        if not isinstance(expires_s, int | float) or expires_s <= now_s:
            raise TokenUnavailable("the token that was issued has expired, or has no claim exp")
        self._token, self.expires_s = token, float(expires_s)
        self._renew_at_s = self._renewal().due_s(now_s, expires_s, self._uniform())
        self._failure_count, self._retry_at_s = 0, 0.0


def endpoint_token(url: str, options: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> str:
    """Return a token of an identity provider, or the content of a file. Blocks. Raises TokenUnavailable.

    `options` are those of the login module: clientId, clientSecret and scope. `timeout_s` limits the time to
    connect, and each wait for data.
    """
    # On demand: few brokers have an identity provider, and these modules cost every start.
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    from broker.security.url_reader import opened

    request = Request(url)
    if not url.startswith("file://"):
        form = {"grant_type": "client_credentials", **({"scope": options["scope"]} if "scope" in options else {})}
        credentials = f"{quote_plus(options['clientId'])}:{quote_plus(options['clientSecret'])}"
        request = Request(url, urlencode(form).encode(), {"Accept": "application/json"})
        request.add_header("Authorization", "Basic " + b64encode(credentials.encode()).decode())
    try:
        with opened(request, timeout_s=timeout_s) as response:
            data = response.read(TOKEN_SIZE_MAX + 1)
        if len(data) > TOKEN_SIZE_MAX:
            raise ValueError(f"more than {TOKEN_SIZE_MAX} bytes")
        text = data.decode()
        return str(text.strip() if url.startswith("file://") else _access_token(text))
    except HTTPError as error:
        with error:
            raise TokenUnavailable(_refusal(url, error)) from None
    except (OSError, ValueError, HTTPException, RecursionError) as error:
        raise TokenUnavailable(f"cannot get a token from {url}: {error}") from None


def _refusal(url: str, error: HTTPError) -> str:
    try:
        reason = error.read(_ERROR_SIZE_MAX).decode(errors="replace")
    except OSError as failure:
        reason = str(failure)
    return f"{url} responds with status {error.code}: {reason}"


def unsecured_token(options: Mapping[str, str], now_s: float) -> str:
    """Return a token without signature, with the claims in the login module's options (Kafka's `unsecuredLogin...`).

    Raises TokenUnavailable.
    """
    claims: dict[str, Any] = {}
    try:
        for key, value in options.items():
            kind, _, name = key.removeprefix(_UNSECURED).partition("Claim_")
            if key.startswith(_UNSECURED) and name:
                claims[name] = _CLAIM_KINDS[kind](value)
        lifetime_s = float(options.get(f"{_UNSECURED}LifetimeSeconds", _LIFETIME_S))
    except (KeyError, ValueError) as error:
        raise TokenUnavailable(f"an option {_UNSECURED}... is invalid: {error}") from None
    if not isinstance(claims.get(options.get(f"{_UNSECURED}PrincipalClaimName", "sub")), str):
        raise TokenUnavailable(f'the login module needs {_UNSECURED}StringClaim_sub="USER"')
    claims = {"iat": now_s, "exp": now_s + lifetime_s, **claims}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def token_extensions(options: Mapping[str, str]) -> dict[str, str]:
    """Return the SASL extensions in the login module's options."""
    prefixes = (f"{_UNSECURED}Extension_", "extension_")
    return {
        key.removeprefix(prefix): value
        for key, value in options.items()
        for prefix in prefixes
        if key.startswith(prefix)
    }


def _items(text: str) -> list[str]:
    """Return the items of a list, whose first character is the separator."""
    return text[1:].split(text[0]) if text else []


_CLAIM_KINDS: Mapping[str, Callable[[str], Any]] = {"String": str, "Number": float, "List": _items}


def _access_token(text: str) -> str:
    document = json.loads(text)
    token = document.get("access_token") if isinstance(document, dict) else None
    if not isinstance(token, str):
        raise ValueError("its response has no access_token")
    return token


def _part(content: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
