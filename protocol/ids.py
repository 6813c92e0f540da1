"""Ids of topics, clusters and delegation tokens as text: 22 characters of URL-safe base64 without padding, as in Kafka.

Owns the text form, nothing else. Randomness is an argument.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from uuid import UUID

_TEXT_LENGTH = 22
_SIZE = 16


def id_text(identifier: UUID) -> str:
    """Return the text of an id."""
    return urlsafe_b64encode(identifier.bytes).rstrip(b"=").decode()


def parse_id(text: str) -> UUID:
    """Return the id of a text. Raises ValueError."""
    try:
        data = urlsafe_b64decode(text + "==")
    except ValueError:
        data = b""
    if len(text) != _TEXT_LENGTH or len(data) != _SIZE:
        raise ValueError(f"{text!r} is not an id: expected {_TEXT_LENGTH} characters of URL-safe base64")
    return UUID(bytes=data)


def random_id(random_bits: Callable[[int], int]) -> UUID:
    """Return an id whose text does not begin with `-`, which tools would parse as an option.

    `random_bits(count)` returns a number of so many random bits.
    """
    while id_text(identifier := UUID(int=random_bits(128), version=4)).startswith("-"):
        pass
    return identifier
