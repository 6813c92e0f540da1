"""The secrets that tests use, and a check that no log line and no response has one of them.

Owns the list and the search. `tests/conftest.py` checks every log record of the suite, `BrokerProcess` every log of a
broker, `InProcessBroker` every response. A secret is a text that occurs nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

SECRETS: Final = (
    "store secret",
    "key secret",
    "alice secret",
    "alice-secret",
    "first secret",
    'kafka "secret"',
    "change-me",
    "hunter2",
    "between brokers",
)


def secrets_in(text: str) -> list[str]:
    """Return the secrets that a text contains."""
    return [secret for secret in SECRETS if secret in text]


def secrets_in_bytes(pieces: Iterable[bytes | bytearray | memoryview]) -> list[str]:
    """Return the secrets that the pieces of a response contain."""
    data = b"".join(bytes(piece) for piece in pieces)
    return [secret for secret in SECRETS if secret.encode() in data]


class SecretsInLogs(logging.Handler):
    """Collects the log lines that have a secret, with their tracebacks."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if secrets_in(text):
            self.lines.append(text)
