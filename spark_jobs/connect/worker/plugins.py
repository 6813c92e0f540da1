"""Finds connectors, converters, transforms and predicates by name.

A name is a full Java class name of a built-in plug-in, the name of a Python class, with or without its module, or the
short form of either, without `Connector`. Python classes are found in three places: in this package, under the entry
point group `milena.connect` of installed packages, and in the folders of `plugin.path`, whose modules are imported when
the worker starts. A module that cannot be imported is reported in the log and left out.

Owns the names. Must not know what a plug-in does.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeVar, cast

from spark_jobs.connect.base.api import (
    Connector,
    Converter,
    HeaderConverter,
    Predicate,
    SinkConnector,
    SourceConnector,
    Transformation,
)
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.connectors import CONNECTORS
from spark_jobs.connect.converters import CONVERTERS, HEADER_CONVERTERS
from spark_jobs.connect.transforms import PREDICATES, TRANSFORMATIONS

logger = logging.getLogger("org.apache.kafka.connect.runtime.isolation.Plugins")

ENTRY_POINTS: Final = "milena.connect"
SUFFIX: Final = "Connector"
JAR: Final = ".jar"

KINDS: Mapping[str, type] = {
    "source": SourceConnector,
    "sink": SinkConnector,
    "converter": Converter,
    "header_converter": HeaderConverter,
    "transformation": Transformation,
    "predicate": Predicate,
}
"""By the name that the REST interface has for a kind of plug-in."""

T = TypeVar("T")


class Plugin(NamedTuple):
    """A plug-in as `GET /connector-plugins` lists it; `target` is `module:Class`, the class is imported when used."""

    name: str
    kind: str
    target: str

    def load(self) -> type[Any]:
        """Raises ConfigError if the class cannot be imported."""
        module, _, class_name = self.target.partition(":")
        try:
            return cast(type[Any], getattr(importlib.import_module(module), class_name))
        except (Exception, SystemExit) as error:  # of any code in the module
            raise ConfigError(f"The class {self.name} cannot be loaded from {module}: {error}") from error


class Plugins:
    """All plug-ins of one worker."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self.all: list[Plugin] = []
        self._by_name: dict[tuple[str, str], Plugin] = {}
        for name, target, kind in _built_in():
            self._add(Plugin(name, kind, target))
        for point in entry_points(group=ENTRY_POINTS):
            self._add_class(point.name, point.load)
        for folder in folders:
            self._add_folder(folder)

    def connector(self, name: str) -> type[Connector]:
        """Raises ConfigError with the list of connectors for an unknown name."""
        found = self._by_name.get(("source", name)) or self._by_name.get(("sink", name))
        if found is None:
            known = ", ".join(sorted({each.name for each in self.all if each.kind in ("source", "sink")}))
            raise ConfigError(
                f"Failed to find any class that implements Connector and which name matches {name}, "
                f"available connectors are: {known}"
            )
        return cast(type[Connector], found.load())

    def is_source(self, name: str) -> bool:
        """Return whether a class is that of sources, not of sinks. Raises ConfigError, as `connector`."""
        return issubclass(self.connector(name), SourceConnector)

    def converter(self, name: str) -> type[Converter]:
        return cast(type[Converter], self._load("converter", name))

    def header_converter(self, name: str) -> type[HeaderConverter | Converter]:
        """A converter serves as a header converter too."""
        kind = "header_converter" if ("header_converter", name) in self._by_name else "converter"
        return cast(type[HeaderConverter | Converter], self._load(kind, name))

    def transformation(self, name: str) -> type[Transformation]:
        return cast(type[Transformation], self._load("transformation", name))

    def predicate(self, name: str) -> type[Predicate]:
        return cast(type[Predicate], self._load("predicate", name))

    def find(self, name: str) -> Plugin | None:
        """Return a plug-in of any kind by name."""
        return next((self._by_name[kind, name] for kind in KINDS if (kind, name) in self._by_name), None)

    def _load(self, kind: str, name: str) -> type[Any]:
        """Raises ConfigError with the list of plug-ins of the kind for an unknown name."""
        found = self._by_name.get((kind, name))
        if found is None:
            known = ", ".join(sorted({each.name for each in self.all if each.kind == kind}))
            raise ConfigError(f"Class {name} could not be found: expected one of {known}")
        return found.load()

    def _add(self, plugin: Plugin) -> None:
        self.all.append(plugin)
        short = plugin.name.rpartition(".")[2]
        for name in (plugin.name, short, short.removesuffix(SUFFIX)):
            self._by_name.setdefault((plugin.kind, name), plugin)

    def _add_class(self, name: str, load: Any) -> None:
        try:
            self._add_found(load())
        except (Exception, SystemExit) as error:  # of any code in the module
            logger.error("the plug-in %s cannot be loaded: %s", name, error)

    def _add_folder(self, folder: Path) -> None:
        if folder.suffix == JAR:
            logger.warning("plugin.path names %s: connectors in Java are not loaded here", folder)
            return
        folder = Path(os.path.abspath(folder))  # as the import system names the files in it
        try:
            paths = sorted(folder.iterdir())
        except OSError as error:
            logger.error("plugin.path names %s, which is no folder that can be read: %s", folder, error.strerror)
            return
        sys.path.append(str(folder))
        for path in paths:
            if path.suffix == ".py" or (path / "__init__.py").exists():
                self._add_module(path.stem, folder)

    def _add_module(self, name: str, folder: Path) -> None:
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit) as error:  # of any code in the module
            logger.error("the module %s in %s cannot be imported: %s: %s", name, folder, type(error).__name__, error)
            return
        if Path(getattr(module, "__file__", None) or "").is_relative_to(folder):
            for found in _classes(module):
                self._add_found(found)
        else:
            logger.error("the module %s in %s has the name of another module, and is left out", name, folder)

    def _add_found(self, found: type[Any]) -> None:
        for kind, base in KINDS.items():
            if issubclass(found, base):
                self._add(Plugin(f"{found.__module__}.{found.__qualname__}", kind, _target(found)))


def _built_in() -> Iterator[tuple[str, str, str]]:
    for name, (target, direction) in CONNECTORS.items():
        yield name, target, direction
    tables: Iterable[tuple[str, Mapping[str, str]]] = (
        ("converter", CONVERTERS),
        ("header_converter", HEADER_CONVERTERS),
        ("transformation", TRANSFORMATIONS),
        ("predicate", PREDICATES),
    )
    for kind, table in tables:
        for name, target in table.items():
            yield name, target, kind


def _target(found: type[Any]) -> str:
    return f"{found.__module__}:{found.__qualname__}"


def _classes(module: ModuleType) -> Iterator[type[Any]]:
    """Yield the plug-ins that a module or a module of its package defines."""
    for found in vars(module).values():
        is_own = inspect.isclass(found) and found.__module__.partition(".")[0] == module.__name__
        if is_own and not inspect.isabstract(found) and issubclass(found, tuple(KINDS.values())):
            yield found
