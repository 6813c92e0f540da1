"""Values stored outside the settings file: `${provider:path:key}`.

`config.providers` names providers, and `config.providers.<name>.class` is the kind of each. A value may then refer to
an environment variable (`${name:VARIABLE}`), to a key of another properties file (`${name:/path/file:key}`) or to a
file of a directory (`${name:/path:file}`). References in a provided value are not resolved.

Owns the syntax and the three kinds of providers. Must not know any other setting.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from base import properties
from config.definition import ConfigError

Provider = Callable[[str, str], str]
"""Returns the value for a path and key. Raises OSError, KeyError or ValueError if there is none."""

_REFERENCE = r"\$\{([^}:]*):(?:([^}]*?):)?([^}:]*)\}"


def _from_environment(path: str, key: str) -> str:
    if path:
        raise ValueError("an environment variable has no path")
    return os.environ[key]


def _from_file(path: str, key: str) -> str:
    return properties.load(path)[key]


def _from_directory(path: str, key: str) -> str:
    if "/" in key or key in ("", ".", ".."):
        raise ValueError("the key must be the name of a file in the folder")
    return (Path(path) / key).read_text(encoding="utf-8")


_PROVIDERS: Mapping[str, Provider] = {
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": _from_environment,
    "org.apache.kafka.common.config.provider.FileConfigProvider": _from_file,
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": _from_directory,
}


def resolve(settings: Mapping[str, str]) -> tuple[dict[str, str], list[ConfigError]]:
    """Settings with their references replaced, and what could not be."""
    errors: list[ConfigError] = []
    providers: dict[str, Provider] = {}
    for name in filter(None, (part.strip() for part in settings.get("config.providers", "").split(","))):
        class_key = f"config.providers.{name}.class"
        class_name = settings.get(class_key, "").strip()
        if class_name in _PROVIDERS:
            providers[name] = _PROVIDERS[class_name]
        else:
            errors.append(ConfigError(class_key, class_name, f"Expected one of {', '.join(_PROVIDERS)}"))
    resolved = {key: _resolve_value(key, value, providers, errors) for key, value in settings.items()}
    return resolved, errors


def _resolve_value(key: str, value: str, providers: Mapping[str, Provider], errors: list[ConfigError]) -> str:
    def replacement(match: re.Match[str]) -> str:
        name, path, path_key = match.groups()
        provider = providers.get(name)
        if provider is None:
            return match[0]
        try:
            return provider(path or "", path_key)
        except (OSError, KeyError, ValueError) as error:
            reason = "there is no such key" if isinstance(error, KeyError) else str(error)
            errors.append(ConfigError(key, match[0], f"The reference cannot be resolved: {reason}"))
            return match[0]

    return re.sub(_REFERENCE, replacement, value) if providers and "${" in value else value
