"""DIGEST-MD5 by the example of RFC 2831, and challenges that must not get a response."""

from __future__ import annotations

import re
from hashlib import md5

import pytest

from controller.zookeeper import digest_md5
from controller.zookeeper.digest_md5 import DigestMd5Login
from controller.zookeeper.security import LoginRefused

# RFC 2831, section 4; there the service is IMAP.
CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'


def login() -> DigestMd5Login:
    return DigestMd5Login("chris", "secret", "OA6MHXh6VqTrRk")


def test_example_of_the_rfc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_md5, "DIGEST_URI", "imap/elwood.innosoft.com")
    client = login()
    assert client.respond(None) == b""
    response = client.respond(CHALLENGE)
    assert response is not None
    assert b"response=d388dad90d4bbd760a152321f2143af7" in response
    assert b'username="chris"' in response
    assert client.respond(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") is None


@pytest.mark.parametrize(
    "proof", [b"rspauth=00000000000000000000000000000000", b"", b"rspauth=", b"rspauth=\xff", b"x"]
)
def test_server_without_the_proof_is_refused(proof: bytes) -> None:
    client = login()
    client.respond(None)
    client.respond(CHALLENGE)
    with pytest.raises(LoginRefused):
        client.respond(proof)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"nonsense",
        CHALLENGE.replace(b"md5-sess", b"md5"),
        CHALLENGE.replace(b'qop="auth"', b'qop="auth-int,auth-conf"'),
        CHALLENGE.replace(b'nonce="OA6MG9tEQGm2hh",', b""),
        CHALLENGE[:-20] + b"\xff",
        b'realm="never ends',
    ],
)
def test_challenge_without_what_is_needed_is_refused(challenge: bytes) -> None:
    client = login()
    client.respond(None)
    with pytest.raises(LoginRefused):
        client.respond(challenge)


@pytest.mark.parametrize(
    ("password", "octets"), [("é", b"\xe9"), ("密", "密".encode()), ('quote" and \\', b'quote" and \\')]
)
def test_latin_text_is_hashed_as_latin_1(password: str, octets: bytes) -> None:
    client = DigestMd5Login('u"1', password, "c")
    client.respond(None)
    response = client.respond(b'realm="r",nonce="n",qop="auth",algorithm=md5-sess,charset=utf-8') or b""
    key = md5(md5(b'u"1:r:' + octets).digest() + b":n:c").hexdigest()
    second = md5(b"AUTHENTICATE:zookeeper/zk-sasl-md5").hexdigest()
    expected = md5(f"{key}:n:00000001:c:auth:{second}".encode()).hexdigest()
    assert re.search(rb"response=(\w+)", response)[1].decode() == expected  # type: ignore[index]
    assert b'username="u\\"1"' in response
