"""Tokens of identity providers: what is accepted, and every reason to reject one."""

import json
from typing import Any

import pytest

from broker.network.sasl.exchange import Login
from broker.network.sasl.oauthbearer import InvalidToken
from broker.security.web_tokens import TokenRules, parse_key_set, unsecured_login, verified_login
from tests.support.identity_provider import IdentityProvider, encoded

PROVIDER = IdentityProvider()
WEAK = IdentityProvider(rsa_bits=1024)
KEYS = parse_key_set(PROVIDER.key_set)
NOW_S = 1_000_000
CLAIMS: dict[str, Any] = {
    "sub": "alice",
    "exp": NOW_S + 600,
    "iss": "https://id",
    "aud": ["kafka", "x"],
    "scope": "a b",
}
RULES = TokenRules(issuer="https://id", audiences=("kafka",))


def verify(token: str, rules: TokenRules = RULES) -> Login:
    return verified_login(token, KEYS, rules, NOW_S)


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
def test_signed_token_names_its_subject_and_its_end(algorithm: str) -> None:
    assert verify(PROVIDER.token(CLAIMS, algorithm=algorithm)) == Login("alice", expires_ms=(NOW_S + 600) * 1000)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sub": None}, "sub"),
        ({"sub": " "}, "sub"),
        ({"sub": 5}, "sub"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": NOW_S - 31}, "expired"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iat": NOW_S + 31}, "not valid yet"),
        ({"iss": "https://other"}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"scope": 5}, "scope"),
    ],
)
def test_claims_are_checked(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        verify(PROVIDER.token({**CLAIMS, **changes}))


def test_clocks_may_differ_by_the_skew() -> None:
    claims = {**CLAIMS, "exp": NOW_S - 30, "nbf": NOW_S + 30}
    assert verify(PROVIDER.token(claims)).user == "alice"


def test_claim_of_the_subject_can_be_another() -> None:
    token = PROVIDER.token({**CLAIMS, "email": "a@b"})
    assert verify(token, TokenRules(subject_claim="email")).user == "a@b"


def test_signature_is_checked() -> None:
    token = PROVIDER.token(CLAIMS)
    head, claims, signature = token.split(".")
    forged = encoded(json.dumps({**CLAIMS, "sub": "admin"}).encode())
    other = IdentityProvider().token(CLAIMS)
    for wrong in (f"{head}.{forged}.{signature}", f"{head}.{claims}.", other):
        with pytest.raises(InvalidToken, match="signature"):
            verify(wrong)


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS1", "ES256"])
def test_algorithm_must_be_one_of_the_key(algorithm: str) -> None:
    with pytest.raises(InvalidToken, match="algorithm"):
        verify(PROVIDER.token(CLAIMS, algorithm=algorithm, key_id="rsa"))


def test_unknown_key_is_rejected() -> None:
    with pytest.raises(InvalidToken, match="no key"):
        verify(PROVIDER.token(CLAIMS, key_id="other"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"use": "enc"}, "its use is 'enc', expected 'sig'"),
        ({"use": ["sig"]}, r"its use is \['sig'\]"),
        ({"key_ops": ["encrypt"]}, r"its key_ops are \['encrypt'\], expected 'verify' among them"),
        ({"key_ops": "verify"}, "its key_ops are 'verify'"),
        (WEAK.key_set_document["keys"][0], "it has 1024 bits, expected at least 2048"),
    ],
)
def test_key_that_is_not_for_signatures_or_weak_is_refused(changes: dict[str, Any], reason: str) -> None:
    document = PROVIDER.key_set_document
    document["keys"][0].update(changes)
    keys = parse_key_set(json.dumps(document).encode())
    assert verified_login(PROVIDER.token(CLAIMS, algorithm="ES256"), keys, RULES, NOW_S).user == "alice"
    signer = WEAK if "n" in changes else PROVIDER
    with pytest.raises(InvalidToken, match=f"the key with the id 'rsa' is not used: {reason}"):
        verified_login(signer.token(CLAIMS), keys, RULES, NOW_S)
    document["keys"] = document["keys"][:1]
    with pytest.raises(ValueError, match=f"no key that verifies signatures.*; 'rsa': {reason}"):
        parse_key_set(json.dumps(document).encode())


@pytest.mark.parametrize("changes", [{"use": "sig"}, {"key_ops": ["verify"]}])
def test_key_that_is_declared_for_signatures_is_used(changes: dict[str, Any]) -> None:
    document = PROVIDER.key_set_document
    document["keys"][0].update(changes)
    keys = parse_key_set(json.dumps(document).encode())
    assert verified_login(PROVIDER.token(CLAIMS), keys, RULES, NOW_S).user == "alice"


@pytest.mark.parametrize("key_id", [["rsa"], {"rsa": 1}, 5])
def test_key_id_that_is_no_text_is_rejected(key_id: object) -> None:
    header = encoded(json.dumps({"alg": "RS256", "kid": key_id}).encode())
    with pytest.raises(InvalidToken, match="Key ID"):
        verify(".".join([header, *PROVIDER.token(CLAIMS).split(".")[1:]]))


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c.d", "!.!.!", "e30.W10.", "W10.e30.", "e30." + "A" * 70_000 + "."])
def test_malformed_token_is_rejected(token: str) -> None:
    with pytest.raises(InvalidToken):
        verify(token)


def test_unsecured_token_must_have_no_signature() -> None:
    head = encoded(b'{"alg":"none"}')
    claims = encoded(json.dumps(CLAIMS).encode())
    assert unsecured_login(f"{head}.{claims}.", RULES, NOW_S).user == "alice"
    with pytest.raises(InvalidToken, match="signed"):
        unsecured_login(PROVIDER.token(CLAIMS), RULES, NOW_S)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"keys": 5}', b'{"keys": []}', b'{"keys": [{"kty": "RSA", "n": "!"}]}'])
def test_useless_key_set_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_key_set(data)
