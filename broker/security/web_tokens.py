"""JSON Web Tokens (RFC 7519), as identity providers issue them, and the key sets that verify them (RFC 7517).

Owns: the form of tokens and key sets, signatures, and the checks of claims. Pure: the time is an argument. Must not
know where keys come from. The library for signatures is imported with the first key set.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker.network.sasl.exchange import Login
from broker.network.sasl.oauthbearer import InvalidToken
from protocol.dataclass import dataclass

TOKEN_SIZE_MAX = 64 << 10
NO_SIGNATURE = "none"

Verifier = Callable[[str, bytes, bytes], None]
"""Verifies a signature by one key: the algorithm, the signed bytes, the signature. Raises InvalidToken."""
KeySet = Mapping[str | None, Verifier]
"""Keys by their ids."""

_RSA = {"RS256": "SHA256", "RS384": "SHA384", "RS512": "SHA512"}
_RSA_PSS = {"PS256": "SHA256", "PS384": "SHA384", "PS512": "SHA512"}
_CURVES = {"P-256": ("SECP256R1", "ES256", "SHA256", 32), "P-384": ("SECP384R1", "ES384", "SHA384", 48)}


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
    """Return whom a signed token is about. Raises InvalidToken."""
    header, claims, signed, signature = _parts(token)
    algorithm = str(header.get("alg"))
    key_id = header.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidToken("the id of the key is no text")
    verify = keys.get(key_id)
    if verify is None:
        raise UnknownKeyError(f"no key with the id {key_id!r}")
    verify(algorithm, signed, signature)
    return _checked(claims, rules, now_s)


def unsecured_login(token: str, rules: TokenRules, now_s: float) -> Login:
    """Return whom a token without a signature claims to be about; for development only. Raises InvalidToken."""
    header, claims, _, signature = _parts(token)
    if header.get("alg") != NO_SIGNATURE or signature:
        raise InvalidToken("the token is signed, and no keys are configured")
    return _checked(claims, rules, now_s)


def token_claims(token: str) -> dict[str, Any]:
    """Return the claims of a token without any check of them. Raises InvalidToken."""
    return _parts(token)[1]


def parse_key_set(data: bytes) -> KeySet:
    """Return the keys of a JWKS document. Keys of other kinds are left out. Raises ValueError."""
    document = json.loads(data)
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise ValueError("expected a JSON object with a list of keys")
    keys = [key for key in document["keys"] if isinstance(key, dict)]
    found = {key.get("kid"): verifier for key in keys if (verifier := _verifier(key)) is not None}
    if not found:
        raise ValueError("it has no key of a known kind, expected RSA or EC")
    return found


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Return header, claims, the signed bytes and the signature."""
    pieces = token.split(".")
    if len(pieces) != 3 or len(token) > TOKEN_SIZE_MAX:
        raise InvalidToken("the token does not consist of three parts")
    try:
        header, claims = (json.loads(_decoded(piece)) for piece in pieces[:2])
        signature = _decoded(pieces[2])
    except (ValueError, RecursionError):
        raise InvalidToken("a part of the token is not JSON in base64") from None
    if not isinstance(header, dict) or not isinstance(claims, dict) or "crit" in header:
        raise InvalidToken("header or claims are not as expected")
    return header, claims, f"{pieces[0]}.{pieces[1]}".encode(), signature


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


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


def _verifier(key: dict[str, Any]) -> Verifier | None:
    try:
        if key.get("kty") == "RSA":
            return _rsa_verifier(key)
        if key.get("kty") == "EC" and key.get("crv") in _CURVES:
            return _ec_verifier(key)
    except (KeyError, ValueError, TypeError):
        return None
    return None


def _number(text: str) -> int:
    return int.from_bytes(_decoded(text), "big")


def _rsa_verifier(key: dict[str, Any]) -> Verifier:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    public = rsa.RSAPublicNumbers(_number(key["e"]), _number(key["n"])).public_key()
    only = key.get("alg")

    def verify(algorithm: str, signed: bytes, signature: bytes) -> None:
        if only not in (None, algorithm) or algorithm not in _RSA | _RSA_PSS:
            raise InvalidToken(f"the algorithm {algorithm} is not the one of the key")
        digest = getattr(hashes, (_RSA | _RSA_PSS)[algorithm])()
        scheme = padding.PKCS1v15() if algorithm in _RSA else padding.PSS(padding.MGF1(digest), digest.digest_size)
        try:
            public.verify(signature, signed, scheme, digest)
        except InvalidSignature:
            raise InvalidToken("the signature is wrong") from None

    return verify


def _ec_verifier(key: dict[str, Any]) -> Verifier:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    curve, only, digest_name, size = _CURVES[key["crv"]]
    public = ec.EllipticCurvePublicNumbers(_number(key["x"]), _number(key["y"]), getattr(ec, curve)()).public_key()

    def verify(algorithm: str, signed: bytes, signature: bytes) -> None:
        if algorithm != only or len(signature) != 2 * size:
            raise InvalidToken(
                f"the algorithm {algorithm} is not the one of the key, or the signature has another size"
            )
        r, s = int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big")
        try:
            public.verify(encode_dss_signature(r, s), signed, ec.ECDSA(getattr(hashes, digest_name)()))
        except InvalidSignature:
            raise InvalidToken("the signature is wrong") from None

    return verify
