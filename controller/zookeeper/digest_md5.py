"""The SASL mechanism DIGEST-MD5 (RFC 2831), as ZooKeeper offers it: quality of protection `auth`, no integrity layer.

Owns the responses and the check of the server's proof. Must not know the connection; randomness is an argument.
MD5 is what the mechanism is: over a network, use TLS as well.
"""

from __future__ import annotations

import hmac
import re
from hashlib import md5
from typing import Final

from controller.zookeeper.security import LoginRefused

# ZooKeeper names itself so, whatever its host is.
DIGEST_URI: Final = "zookeeper/zk-sasl-md5"
NONCE_COUNT: Final = "00000001"
QUALITY: Final = "auth"

_DIRECTIVE = re.compile(r'\s*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")


class DigestMd5Login:
    """One login; see `SaslLogin`."""

    def __init__(self, user: str, password: str, client_nonce: str) -> None:
        self._user, self._password, self._client_nonce = user, password, client_nonce
        self._proof = ""

    def respond(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return b""
        directives = _directives(challenge)
        if self._proof:
            if not hmac.compare_digest(directives.get("rspauth", "").encode(), self._proof.encode()):
                raise LoginRefused("ZooKeeper does not prove that it knows the password")
            return None
        return self._response(directives)

    def _response(self, directives: dict[str, str]) -> bytes:
        nonce, realm = directives.get("nonce", ""), directives.get("realm", "")
        if not nonce or directives.get("algorithm") != "md5-sess":
            raise LoginRefused("the challenge of ZooKeeper has no nonce, or not the algorithm md5-sess")
        if QUALITY not in directives.get("qop", QUALITY).replace(" ", "").split(","):
            raise LoginRefused(f"ZooKeeper does not offer the quality of protection {QUALITY}")
        secret = md5(b":".join(_octets(part) for part in (self._user, realm, self._password)), usedforsecurity=False)
        key = md5(secret.digest() + f":{nonce}:{self._client_nonce}".encode(), usedforsecurity=False).hexdigest()
        between = f"{nonce}:{NONCE_COUNT}:{self._client_nonce}:{QUALITY}"
        self._proof = _hashed(f"{key}:{between}:{_hashed(f':{DIGEST_URI}')}")
        proof = _hashed(f"{key}:{between}:{_hashed(f'AUTHENTICATE:{DIGEST_URI}')}")
        fields = [
            "charset=utf-8",
            f"username={_quoted(self._user)}",
            f"realm={_quoted(realm)}",
            f"nonce={_quoted(nonce)}",
            f"nc={NONCE_COUNT}",
            f"cnonce={_quoted(self._client_nonce)}",
            f"digest-uri={_quoted(DIGEST_URI)}",
            "maxbuf=65536",
            f"response={proof}",
            f"qop={QUALITY}",
        ]
        return ",".join(fields).encode()


def _directives(challenge: bytes) -> dict[str, str]:
    """Return the directives; of a repeated one, such as `realm`, the first. Raises LoginRefused."""
    try:
        text = challenge.decode()
    except UnicodeDecodeError as error:
        raise LoginRefused(f"the challenge of ZooKeeper is not UTF-8: {error}") from error
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise LoginRefused("the challenge of ZooKeeper cannot be parsed")
        name, quoted, plain = match.groups()
        found.setdefault(name.lower(), plain if quoted is None else _ESCAPE.sub(r"\1", quoted))
        position = match.end()
    return found


def _octets(text: str) -> bytes:
    """RFC 2831, 2.1.2.1: text that fits ISO 8859-1 is hashed in it, other text in UTF-8."""
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode()


def _hashed(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
