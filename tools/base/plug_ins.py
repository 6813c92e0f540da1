"""Plug-ins of tools, named on the command line: built-in ones by Java class name, others as `module:Class`.

Owns how a name becomes a class or a function. Must not know its purpose.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from tools.base.command_line import UsageError

T = TypeVar("T")


def load_plug_in(name: str, built_in: Mapping[str, Callable[..., T]], what: str) -> Callable[..., T]:
    """Return the factory of the plug-in `name`: a built-in by its Java class name, or a class of a module.

    Raises UsageError if it does not exist.
    """
    short_name = name.rpartition(".")[2].rpartition("$")[2]
    if short_name in built_in:
        return built_in[short_name]
    module_name, colon, class_name = name.partition(":")
    if colon:
        try:
            return cast(Callable[..., T], _attribute(importlib.import_module(module_name), class_name))
        except (ImportError, AttributeError) as error:
            raise UsageError(f"Cannot load the {what} {name}: {error}") from error
    raise UsageError(f"Unknown {what} {name}; built in are {', '.join(built_in)}, plug-ins are named module:Class")


def _attribute(module: Any, name: str) -> object:
    return getattr(module, name)
