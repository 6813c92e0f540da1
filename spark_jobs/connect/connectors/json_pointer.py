"""JSON pointers (RFC 6901), which name a part of a JSON value: `/data/items`, `/0/id`; the empty one is the whole.

Owns their syntax. Must not know where the value is from.
"""

from __future__ import annotations

from typing import Any

from spark_jobs.connect.base.definitions import invalid


def check_pointer(name: str, value: Any) -> None:
    """Raise ConfigError if the value of a setting is no pointer."""
    if value and not value.startswith("/"):
        raise invalid(name, value, "Expected a JSON pointer, which is empty or starts with /, such as /data/items")


def resolve(pointer: str, value: Any) -> Any:
    """Return the part that a pointer names. Raises KeyError, whose argument says what is missing."""
    for escaped in pointer.split("/")[1:]:
        token = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and token.isascii() and token.isdigit() and int(token) < len(value):
            value = value[int(token)]
        else:
            raise KeyError(f"{pointer}: there is no {token}")
    return value
