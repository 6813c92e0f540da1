"""SCRAM: against an independent client (`scramp`), RFC 7677's example, and every wrong message."""

import hashlib
import hmac
import random
from base64 import b64decode, b64encode
from functools import cache

import pytest
from scramp import ScramClient, ScramException

from broker.network.sasl.exchange import AuthenticationFailed, InvalidCredentials, Login, Step
from broker.network.sasl.scram import Digest, ScramCredential, ScramExchange, ScramUser

SECRET = b"s" * 32


@cache
def credential(
    password: str, digest: Digest, salt: bytes = b"a salt of many bytes", iterations: int = 4096
) -> ScramCredential:
    salted = hashlib.pbkdf2_hmac(digest.value, password.encode(), salt, iterations)
    stored_key = hashlib.new(digest.value, client_key_of(password, digest, salt, iterations)).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", digest.value), iterations)


@cache
def client_key_of(password: str, digest: Digest, salt: bytes, iterations: int) -> bytes:
    salted = hashlib.pbkdf2_hmac(digest.value, password.encode(), salt, iterations)
    return hmac.digest(salted, b"Client Key", digest.value)


def exchange(digest: Digest = Digest.SCRAM_SHA_256, nonce: str = "server", **users: str) -> ScramExchange:
    def lookup(name: str, is_by_token: bool) -> ScramUser | None:
        if is_by_token:
            return ScramUser(credential(users["token"], digest), Login("owner", 99, is_by_token=True))
        return ScramUser(credential(users[name], digest), Login(name)) if name in users else None

    return ScramExchange(digest, lookup, nonce, SECRET)


def client_final(
    first: bytes, server_first: bytes, password: str, digest: Digest, *, nonce: str | None = None
) -> bytes:
    """Return the final message of a client that sends `nonce` in place of the right one."""
    members = dict(part.split("=", 1) for part in server_first.decode().split(","))
    without_proof = f"c=biws,r={members['r'] if nonce is None else nonce}"
    bare = first.decode().split(",", 2)[2]
    signed = f"{bare},{server_first.decode()},{without_proof}".encode()
    known = credential(password, digest)
    client_key = client_key_of(password, digest, known.salt, known.iterations)
    signature = hmac.digest(known.stored_key, signed, digest.value)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("digest", Digest)
@pytest.mark.parametrize("user", ["alice", "a,b=c", "zoë"])
def test_independent_client_logs_in_and_verifies_the_server(digest: Digest, user: str) -> None:
    client = ScramClient([digest.mechanism], user, "pencil")
    server = exchange(digest, **{user: "pencil"})
    client.set_server_first(server.evaluate(client.get_client_first().encode()).token.decode())
    last = server.evaluate(client.get_client_final().encode())
    client.set_server_final(last.token.decode())
    assert last.login == Login(user)


@pytest.mark.parametrize("digest", Digest)
def test_wrong_password_is_rejected(digest: Digest) -> None:
    client = ScramClient([digest.mechanism], "alice", "wrong")
    server = exchange(digest, alice="pencil")
    client.set_server_first(server.evaluate(client.get_client_first().encode()).token.decode())
    with pytest.raises(InvalidCredentials):
        server.evaluate(client.get_client_final().encode())


def test_example_of_rfc_7677() -> None:
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    known = credential("pencil", Digest.SCRAM_SHA_256, b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    server = ScramExchange(Digest.SCRAM_SHA_256, lambda *_: ScramUser(known, Login("user")), nonce, SECRET)
    both = f"rOprNGfwEbeRWgbNEkqO{nonce}"
    first = server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first.token == f"r={both},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    last = server.evaluate(f"c=biws,r={both},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode())
    assert last == Step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", Login("user"))


def test_unknown_user_goes_through_the_same_steps_with_a_steady_salt() -> None:
    first = [exchange(alice="x").evaluate(b"n,,n=nobody,r=abc").token for _ in range(2)]
    assert first[0] == first[1]
    server = exchange(alice="x")
    client = ScramClient(["SCRAM-SHA-256"], "nobody", "x")
    client.set_server_first(server.evaluate(client.get_client_first().encode()).token.decode())
    with pytest.raises(InvalidCredentials):
        server.evaluate(client.get_client_final().encode())


def test_zero_keys_of_a_decoy_are_no_password() -> None:
    """A client that guesses how decoys are made can make a proof for one; the user does not exist nevertheless."""
    server = exchange()
    first = b"n,,n=nobody,r=abc"
    challenge = server.evaluate(first).token
    without_proof = "c=biws,r=abcserver"
    signed = f"{first.decode().split(',', 2)[2]},{challenge.decode()},{without_proof}".encode()
    proof = hmac.digest(bytes(32), signed, "sha256")
    with pytest.raises(InvalidCredentials):
        server.evaluate(f"{without_proof},p={b64encode(proof).decode()}".encode())


@pytest.mark.parametrize("prefix", ["", "abc"], ids=["right nonce", "doubled nonce of librdkafka before 2.6.1"])
def test_nonce_of_every_kafka_client_is_accepted(prefix: str) -> None:
    server = exchange(alice="pencil")
    first = b"n,,n=alice,r=abc"
    challenge = server.evaluate(first).token
    final = client_final(first, challenge, "pencil", Digest.SCRAM_SHA_256, nonce=f"{prefix}abcserver")
    assert server.evaluate(final).login == Login("alice")


@pytest.mark.parametrize("nonce", ["server", "abc", "abcserverx", "xabcserver", "abcabcabcserver", "abcServer"])
def test_cve_2024_56128_final_message_with_another_nonce_is_rejected(nonce: str) -> None:
    server = exchange(alice="pencil")
    first = b"n,,n=alice,r=abc"
    challenge = server.evaluate(first).token
    with pytest.raises(InvalidCredentials, match="nonce"):
        server.evaluate(client_final(first, challenge, "pencil", Digest.SCRAM_SHA_256, nonce=nonce))


def test_delegation_token_logs_in_as_its_owner() -> None:
    server = exchange(token="hmac")
    first = b"n,,n=token-id,r=abc,tokenauth=true"
    challenge = server.evaluate(first).token
    step = server.evaluate(client_final(first, challenge, "hmac", Digest.SCRAM_SHA_256))
    assert step.login == Login("owner", 99, is_by_token=True)


def test_another_authorization_id_is_rejected() -> None:
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        exchange(alice="x").evaluate(b"n,a=bob,n=alice,r=abc")
    assert exchange(alice="x").evaluate(b"n,a=alice,n=alice,r=abc").login is None


@pytest.mark.parametrize(
    "first",
    [b"", b"n,,", b"n,,n=,r=a", b"n,,n=a=b,r=a", b"n,,n=a,r=", b"p=tls-unique,,n=a,r=b", b"\xff", b"n,,m=x,n=a,r=b"],
)
def test_malformed_first_message_is_rejected(first: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        exchange(a="x").evaluate(first)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws,r=abcserver",
        b"c=biws,r=abcserver,p=",
        b"c=biws,r=abcserver,p=====",
        b"c=biws,r=abcserver,p=AAAA",
        b"c=eSws,r=abcserver,p=" + b64encode(bytes(32)),
        b"c=biws,r=abcserver,p=" + b64encode(bytes(32)),
        b"\xff",
    ],
)
def test_malformed_final_message_is_rejected(final: bytes) -> None:
    server = exchange(alice="pencil")
    server.evaluate(b"n,,n=alice,r=abc")
    with pytest.raises(InvalidCredentials):
        server.evaluate(final)


def test_mutated_messages_never_log_in() -> None:
    generator = random.Random(20)
    for _ in range(2000):
        server = exchange(alice="pencil")
        first = b"n,,n=alice,r=abc"
        challenge = server.evaluate(first).token
        final = bytearray(client_final(first, challenge, "pencil", Digest.SCRAM_SHA_256))
        position = generator.randrange(len(final) - 2)  # the last character has bits without a meaning
        final[position] ^= 1 << generator.randrange(8)
        try:
            step = server.evaluate(bytes(final))
        except AuthenticationFailed:
            continue
        raise AssertionError(f"{bytes(final)!r} logged in as {step.login}")


def test_independent_client_rejects_a_server_with_another_key() -> None:
    """The oracle itself notices a wrong signature, so the test above does compare something."""
    client = ScramClient(["SCRAM-SHA-256"], "alice", "pencil")
    server = exchange(alice="pencil")
    client.set_server_first(server.evaluate(client.get_client_first().encode()).token.decode())
    client.get_client_final()
    with pytest.raises(ScramException):
        client.set_server_final("v=" + b64encode(bytes(32)).decode())


@pytest.mark.parametrize("now", [None, "another"])
def test_a_credential_that_is_removed_or_changed_between_the_messages_is_void(now: str | None) -> None:
    digest = Digest.SCRAM_SHA_256
    passwords: dict[str, str] = {"alice": "pencil"}

    def lookup(name: str, is_by_token: bool) -> ScramUser | None:
        return ScramUser(credential(passwords[name], digest), Login(name)) if name in passwords else None

    client = ScramClient([digest.mechanism], "alice", "pencil")
    server = ScramExchange(digest, lookup, "server", SECRET)
    client.set_server_first(server.evaluate(client.get_client_first().encode()).token.decode())
    del passwords["alice"]
    if now is not None:
        passwords["alice"] = now
    with pytest.raises(InvalidCredentials):
        server.evaluate(client.get_client_final().encode())
