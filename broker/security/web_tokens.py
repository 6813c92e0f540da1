"""JSON Web Tokens (RFC 7519), as identity providers issue them, and the key sets that verify them (RFC 7517).

PyJWT parses tokens and keys and verifies signatures. It reads the clock to check claims, so they are checked here.

Owns: which algorithms are accepted, and the checks of claims. Pure: the time is an argument. Must not know where keys
come from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from base.dataclass import dataclass
from broker.network.sasl.exchange import Login
from broker.network.sasl.oauthbearer import InvalidToken

if TYPE_CHECKING:
    from jwt import PyJWK

TOKEN_SIZE_MAX = 64 << 10
NO_SIGNATURE = "none"

# The library is imported by the functions that use it: few brokers have an identity provider, and it costs every start.

_ALGORITHMS: Mapping[tuple[str, str], Sequence[str]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
}
"""By the type of the key, and the curve of an EC key."""
_PUBLIC_FIELDS = ("kty", "kid", "alg", "n", "e", "crv", "x", "y")
"""Of a key set that was published with its private keys, the others must not be used."""


RSA_BITS_MIN = 2048
"""RFC 7518, sections 3.3 and 3.5."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys that an identity provider has published."""

    verifiers: Mapping[str | None, Mapping[str, PyJWK]]
    """Keys by their ids, each by the algorithms that it may verify. They are all asymmetric."""
    refused: Mapping[str | None, str]
    """Why other keys, by their ids, do not verify tokens."""


NO_KEYS = KeySet({}, {})


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must contain, named like the properties."""

    issuer: str | None = None
    audiences: Sequence[str] = ()
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    subject_claim: str = "sub"


class UnknownKeyError(InvalidToken):
    """The key that has signed the token is not in the key set."""


def verified_login(token: str, keys: KeySet, rules: TokenRules, now_s: float) -> Login:
    """Return the login of the subject of a signed token.

    Raises:
        UnknownKeyError: the key that has signed the token is not in `keys`.
        InvalidToken: the token is malformed, its signature is wrong, or a claim is not as `rules` require.
    """
    from jwt import InvalidSignatureError, PyJWS, PyJWTError

    header, claims, _ = _parts(token)
    key_id, algorithm = header.get("kid"), str(header.get("alg"))
    by_algorithm = keys.verifiers.get(key_id)
    if by_algorithm is None:
        if key_id in keys.refused:
            raise InvalidToken(f"the key with the id {key_id!r} is not used: {keys.refused[key_id]}")
        raise UnknownKeyError(f"no key with the id {key_id!r}")
    if algorithm not in by_algorithm:
        raise InvalidToken(f"the algorithm {algorithm} is not the one of the key")
    try:
        PyJWS().decode_complete(token, by_algorithm[algorithm])
    except InvalidSignatureError:
        raise InvalidToken("the signature is wrong") from None
    except PyJWTError as error:
        raise InvalidToken(f"the token cannot be verified: {error}") from None
    return _checked(claims, rules, now_s)


def unsecured_login(token: str, rules: TokenRules, now_s: float) -> Login:
    """Return the login of the subject that a token without a signature names; for development only.

    Raises:
        InvalidToken: the token is malformed or signed, or a claim is not as `rules` require.
    """
    header, claims, signature = _parts(token)
    if header.get("alg") != NO_SIGNATURE or signature:
        raise InvalidToken("the token is signed, and no keys are configured")
    return _checked(claims, rules, now_s)


def token_claims(token: str) -> dict[str, Any]:
    """Return the claims of a token without any check of them. Raises InvalidToken."""
    return _parts(token)[1]


def parse_key_set(data: bytes) -> KeySet:
    """Return the keys of a JWKS document. Keys of unknown kinds are left out. Raises ValueError: no key can be used."""
    document = json.loads(data)
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise ValueError("expected a JSON object with a list of keys")
    verifiers: dict[str | None, Mapping[str, PyJWK]] = {}
    refused: dict[str | None, str] = {}
    for key in document["keys"]:
        if not isinstance(key, dict) or not isinstance(key_id := key.get("kid"), str | None):
            continue
        by_algorithm = dict(_verifiers(key))
        if by_algorithm and (reason := _reason_to_refuse(key, by_algorithm)):
            refused[key_id] = reason
        elif by_algorithm:
            verifiers[key_id] = by_algorithm
    if not verifiers:
        reasons = "".join(f"; {key_id!r}: {reason}" for key_id, reason in refused.items())
        raise ValueError(f"it has no key that verifies signatures, expected RSA or EC{reasons}")
    return KeySet(verifiers, refused)


def _reason_to_refuse(key: dict[str, Any], by_algorithm: Mapping[str, PyJWK]) -> str | None:
    """Return why a key of a known kind must not verify tokens, or None."""
    use, operations = key.get("use"), key.get("key_ops")
    if use not in (None, "sig"):
        return f"its use is {use!r}, expected 'sig'"
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        return f"its key_ops are {operations!r}, expected 'verify' among them"
    size = next(iter(by_algorithm.values())).key.key_size
    if key["kty"] == "RSA" and size < RSA_BITS_MIN:
        return f"it has {size} bits, expected at least {RSA_BITS_MIN}"
    return None


def _verifiers(key: dict[str, Any]) -> Iterator[tuple[str, PyJWK]]:
    """Yield each algorithm that the key may verify; nothing for a key of another kind or without valid numbers."""
    from jwt import PyJWK, PyJWTError

    kind = str(key.get("kty"))
    for algorithm in _ALGORITHMS.get((kind, str(key.get("crv")) if kind == "EC" else ""), ()):
        if key.get("alg") in (None, algorithm):
            try:
                yield algorithm, PyJWK({name: key[name] for name in _PUBLIC_FIELDS if name in key}, algorithm)
            except (PyJWTError, KeyError):
                return


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Return header, claims and signature, which is not verified. Raises InvalidToken."""
    from jwt import PyJWS, PyJWTError

    if len(token) > TOKEN_SIZE_MAX:
        raise InvalidToken(f"the token has {len(token)} characters, expected at most {TOKEN_SIZE_MAX}")
    try:
        parts = PyJWS().decode_complete(token, options={"verify_signature": False})
        header, claims = parts["header"], json.loads(parts["payload"])
    except PyJWTError as error:
        raise InvalidToken(f"the token is malformed: {error}") from None
    except (ValueError, RecursionError):
        raise InvalidToken("the claims of the token are not JSON") from None
    if not isinstance(claims, dict) or "crit" in header:
        raise InvalidToken("header or claims are not as expected")
    return header, claims, parts["signature"]


def _checked(claims: dict[str, Any], rules: TokenRules, now_s: float) -> Login:
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"the claim {rules.subject_claim} is missing")
    expires_s = _time(claims, "exp")
    if expires_s is None:
        raise InvalidToken("the claim exp is missing")
    if now_s > expires_s + rules.clock_skew_s:
        raise InvalidToken("the token has expired")
    for claim in ("nbf", "iat"):
        begins_s = _time(claims, claim)
        if begins_s is not None and now_s < begins_s - rules.clock_skew_s:
            raise InvalidToken(f"the token is not valid yet ({claim})")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken("the issuer is not the expected one")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if rules.audiences and not set(rules.audiences).intersection(each for each in audiences if isinstance(each, str)):
        raise InvalidToken("the audience is not an expected one")
    scope = claims.get(rules.scope_claim)
    if scope is not None and not isinstance(scope, str | list):
        raise InvalidToken(f"the claim {rules.scope_claim} is neither a text nor a list")
    return Login(subject, expires_ms=int(expires_s * 1000))


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise InvalidToken(f"the claim {name} is no time")
    return float(value)
