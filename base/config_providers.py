"""Values stored outside a settings file: `${provider:path:key}`.

`config.providers` names providers, and `config.providers.<name>.class` is the kind of each. A value may then refer to
an environment variable (`${name:VARIABLE}`), to a key of another properties file (`${name:/path/file:key}`) or to a
file of a directory (`${name:/path:file}`). References in a provided value are not resolved.

A provider's own settings limit what it reads: `config.providers.<name>.param.allowed.paths` names files and folders
(KIP-993), `config.providers.<name>.param.allowlist.pattern` is a regular expression for whole names of variables.

Owns the syntax and the three kinds of providers. Must not know any other setting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from base import properties
from base.small_file import read_small_file

PROVIDERS: Final = "config.providers"
_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}:]*)\}")
_ALLOWED_PATHS: Final = "allowed.paths"
_ALLOWED_NAMES: Final = "allowlist.pattern"

Provider = Callable[[str, str], str]
"""Returns the value for a path and key. Raises OSError, KeyError or ValueError if there is none."""


class Problem(NamedTuple):
    """Why a reference, or the setting of a provider, is invalid. `value` is as the file has it."""

    key: str
    value: str
    reason: str


class ConfigProviders:
    """The providers that some settings name."""

    def __init__(self, settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        """What is wrong with the providers themselves: references to those stay as they are."""
        self._providers: dict[str, Provider] = {}
        for name in filter(None, (part.strip() for part in settings.get(PROVIDERS, "").split(","))):
            self._add(name, settings, environment)

    def resolve(self, settings: Mapping[str, str]) -> tuple[dict[str, str], list[Problem]]:
        """Return settings with their references replaced, and what could not be."""
        problems: list[Problem] = []
        return {key: self._resolve_value(key, value, problems) for key, value in settings.items()}, problems

    def _add(self, name: str, settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
        class_key, parameters = f"{PROVIDERS}.{name}.class", f"{PROVIDERS}.{name}.param."
        class_name = settings.get(class_key, "").strip()
        if class_name not in _KINDS:
            self.problems.append(Problem(class_key, class_name, f"Expected one of {', '.join(_KINDS)}"))
            return
        kind = _KINDS[class_name]
        limit = settings.get(f"{parameters}{kind.limit}", "").strip()
        try:
            self._providers[name] = kind.build(limit, environment)
        except ValueError as error:
            self.problems.append(Problem(f"{parameters}{kind.limit}", limit, str(error)))

    def _resolve_value(self, key: str, value: str, problems: list[Problem]) -> str:
        def replacement(match: re.Match[str]) -> str:
            name, path, path_key = match.groups()
            provider = self._providers.get(name)
            if provider is None:
                return match[0]
            try:
                return provider(path or "", path_key)
            except (OSError, KeyError, ValueError) as error:
                reason = "there is no such key" if isinstance(error, KeyError) else str(error)
                problems.append(Problem(key, match[0], f"The reference cannot be resolved: {reason}"))
                return match[0]

        return _REFERENCE.sub(replacement, value) if self._providers and "${" in value else value


def _from_environment(limit: str, environment: Mapping[str, str]) -> Provider:
    try:
        allowed = re.compile(limit or ".*")
    except re.error as error:
        raise ValueError(f"Expected a regular expression: {error}") from None

    def provide(path: str, key: str) -> str:
        if path:
            raise ValueError("an environment variable has no path")
        if allowed.fullmatch(key) is None:
            raise ValueError(f"{_ALLOWED_NAMES} does not allow this variable")
        return environment[key]

    return provide


def _from_file(limit: str, _environment: Mapping[str, str]) -> Provider:
    require_allowed = _path_check(limit)

    def provide(path: str, key: str) -> str:
        return properties.parse_bytes(read_small_file(require_allowed(Path(path))))[key]

    return provide


def _from_directory(limit: str, _environment: Mapping[str, str]) -> Provider:
    require_allowed = _path_check(limit)

    def provide(path: str, key: str) -> str:
        if "/" in key or key in ("", ".", ".."):
            raise ValueError("the key must be the name of a file in the folder")
        return read_small_file(require_allowed(Path(path)) / key).decode()

    return provide


def _path_check(limit: str) -> Callable[[Path], Path]:
    """Return what raises ValueError for a path outside the allowed ones; an empty `limit` allows all."""
    allowed = [Path(part.strip()) for part in limit.split(",") if part.strip()]
    for each in allowed:
        if not each.is_absolute() or not each.exists():
            raise ValueError(f"Expected absolute paths that exist, found {each}")

    def check(path: Path) -> Path:
        if allowed and (".." in path.parts or not any(map(path.is_relative_to, allowed))):
            raise ValueError(f"{_ALLOWED_PATHS} does not allow {path}")
        return path

    return check


class _Kind(NamedTuple):
    limit: str
    """The setting that limits what is read."""
    build: Callable[[str, Mapping[str, str]], Provider]
    """Takes the limit, empty for none, and the environment. Raises ValueError for an invalid limit."""


_PACKAGE: Final = "org.apache.kafka.common.config.provider"
_KINDS: Mapping[str, _Kind] = {
    f"{_PACKAGE}.EnvVarConfigProvider": _Kind(_ALLOWED_NAMES, _from_environment),
    f"{_PACKAGE}.FileConfigProvider": _Kind(_ALLOWED_PATHS, _from_file),
    f"{_PACKAGE}.DirectoryConfigProvider": _Kind(_ALLOWED_PATHS, _from_directory),
}
