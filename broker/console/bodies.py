"""Checks the JSON in requests against the types of the resources.

Owns the check and its messages. Pure. Must not know any resource.
"""

from __future__ import annotations

import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from broker.console.problem import bad_request

_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}
_hints = cache(get_type_hints)
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def require_range(name: str, value: int, minimum: int, maximum: int) -> None:
    """Raise ProblemError unless a number of a body is within a range."""
    if not minimum <= value <= maximum:
        raise bad_request(f"{name}={value}: expected a number from {minimum} to {maximum}")


def require_type(value: object, kind: Any, path: str = "the body") -> None:
    """Raise ProblemError, with the path of the part, unless `value` is of a type; further members are rejected."""
    if is_typeddict(kind):
        _require_object(value, kind, path)
        return
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool):
            raise bad_request(f"{path}: expected one of {', '.join(map(str, arguments))}")
    elif origin in (Union, types.UnionType):
        if not any(_is_a(value, each) for each in arguments):
            raise bad_request(f"{path}: expected {' or '.join(_NAMES[each] for each in arguments)}")
    elif origin is list:
        if not isinstance(value, list):
            raise bad_request(f"{path}: expected a list")
        for at, each in enumerate(value):
            require_type(each, arguments[0], f"{path}[{at}]")
    elif origin is dict:
        if not isinstance(value, dict):
            raise bad_request(f"{path}: expected an object")
        for name, each in value.items():
            require_type(each, arguments[1], f"{path}.{name[:40]}")
    else:
        _require_simple(value, kind, path)


def _require_object(value: object, kind: Any, path: str) -> None:
    if not isinstance(value, dict):
        raise bad_request(f"{path}: expected an object")
    hints = _hints(kind)
    for name in kind.__required_keys__:
        if name not in value:
            raise bad_request(f"{path}.{name} is missing")
    for name, each in value.items():
        if name not in hints:
            raise bad_request(f"{path}.{name[:40]} is not known, expected: {', '.join(sorted(hints))}")
        require_type(each, hints[name], f"{path}.{name}")


def _require_simple(value: object, kind: type, path: str) -> None:
    if not _is_a(value, kind):
        raise bad_request(f"{path}: expected {_NAMES[kind]}")


def _is_a(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, int):
        return (kind is int and INT64_MIN <= value <= INT64_MAX) or (kind is float and abs(value) <= INT64_MAX)
    return isinstance(value, kind)
