"""Loads the Python classes that settings name as `package.module:Class`.

Owns how a name becomes an object, and the error messages. `config` checks the form of the name. Must not know any kind
of plug-in.
"""

from __future__ import annotations

import importlib
from typing import Any

from config.definition import Property


class InvalidPlugInError(Exception):
    """A plug-in cannot be used. The message names the setting and what was expected."""


def plug_in_class(row: Property[Any], name: str) -> Any:
    """Return the class that the setting `row` names as `package.module:Class`. Raises InvalidPlugInError."""
    module, _, class_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), class_name)
    except Exception as error:
        raise InvalidPlugInError(
            f"Invalid value {name} for configuration {row.name}: {error!r}; expected package.module:Class of a Python "
            "class on the broker's PYTHONPATH"
        ) from error
    if not isinstance(found, type):
        raise InvalidPlugInError(f"Invalid value {name} for configuration {row.name}: {class_name} is not a class")
    return found


def new_plug_in(row: Property[Any], name: str, *arguments: object) -> Any:
    """Return a new instance of the class that the setting `row` names. Raises InvalidPlugInError."""
    plug_in = plug_in_class(row, name)
    try:
        return plug_in(*arguments)
    except Exception as error:
        raise InvalidPlugInError(f"{row.name}: {name} cannot be created: {error!r}") from error
