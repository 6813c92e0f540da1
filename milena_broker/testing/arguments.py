"""Checks of what a test passes, before anything is sent: a wrong argument fails where it is written.

Owns the texts. Must not know brokers. Functions raise TypeError or ValueError with the name of the argument, its value,
and what was expected.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

__tracebackhide__ = True

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
VALUE_LENGTH_MAX = 80
_USER = re.compile(r"[A-Za-z0-9._-]+")


def shown(value: object) -> str:
    """Return a value for a message."""
    text = repr(value)
    return text if len(text) <= VALUE_LENGTH_MAX else text[: VALUE_LENGTH_MAX - 3] + "..."


def text(name: str, value: object, expected: str = "a text") -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {shown(value)}: expected {expected}")
    if not value:
        raise ValueError(f"{name} is empty: expected {expected}")
    return value


def integer(name: str, value: object, minimum: int, maximum: int = INT32_MAX) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {shown(value)}: expected an integer")
    if not minimum <= value <= maximum:
        limits = f"at least {minimum}" if value < minimum else f"at most {maximum}"
        raise ValueError(f"{name} is {value}: expected {limits}")
    return value


def optional_integer(name: str, value: object, minimum: int, maximum: int = INT32_MAX) -> int | None:
    return None if value is None else integer(name, value, minimum, maximum)


def number(name: str, value: object, unit: str) -> float:
    """Return a finite number that is not negative."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} is {shown(value)}: expected a number of {unit}")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} is {value}: expected a number of {unit} that is not negative")
    return value


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {shown(value)}: expected True or False")
    return value


def path(name: str, value: object) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} is {shown(value)}: expected a path")
    return Path(value)


def names(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is {shown(value)}: expected a sequence of names")
    return tuple(text(f"{name}[{index}]", each, "a name") for index, each in enumerate(value))


def mapping(name: str, value: object, of: str) -> dict[str, object]:
    """Return a mapping with texts as keys; empty for None. `of` says what it maps."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is {shown(value)}: expected a mapping of {of}")
    return {text(f"a key of {name}", key): each for key, each in value.items()}


def settings(name: str, value: object) -> dict[str, str]:
    """Return settings as the broker reads them."""
    found: dict[str, str] = {}
    for key, each in mapping(name, value, "names of settings to values").items():
        if not isinstance(each, str | int | float):
            raise TypeError(f"{name}[{key!r}] is {shown(each)}: expected a text, a number, True or False")
        found[key] = str(each).lower() if isinstance(each, bool) else str(each)
    return found


def users(name: str, value: object) -> dict[str, str]:
    """Return passwords by user. Messages never contain a password."""
    found: dict[str, str] = {}
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} is a {type(value).__name__}: expected a mapping of users to passwords")
    for user, password in mapping(name, value, "users to passwords").items():
        if not _USER.fullmatch(user):
            raise ValueError(f"a key of {name} is {shown(user)}: expected letters, digits, '.', '_' and '-'")
        if not isinstance(password, str) or not password:
            raise TypeError(f"{name}[{user!r}] is no password: expected a text that is not empty")
        found[user] = password
    return found
