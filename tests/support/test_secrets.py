"""The search for secrets finds them, also in tracebacks, so that the check of the whole suite can fail."""

from __future__ import annotations

import logging

import pytest

from tests.support.secrets import SECRETS, SecretsInLogs, secrets_in, secrets_in_bytes


@pytest.mark.parametrize("secret", SECRETS)
def test_secret_is_found(secret: str) -> None:
    assert secrets_in(f"a line with {secret} in it") == [secret]
    assert secrets_in_bytes([b"\0\0", f"x{secret}x".encode()]) == [secret]
    assert secrets_in("nothing") == secrets_in_bytes([b"nothing"]) == []


def test_secret_in_a_traceback_is_found() -> None:
    handler, own = SecretsInLogs(), logging.getLogger("tests.own")
    own.propagate = False  # the check of the suite would fail this test
    own.addHandler(handler)
    try:
        raise ValueError(SECRETS[0])
    except ValueError:
        own.exception("failed")
    own.info("harmless")
    own.removeHandler(handler)
    assert len(handler.lines) == 1
