"""The config providers of a worker: references such as `${file:/etc/secrets.properties:password}` in settings.

The worker's own file is resolved when it is read. Configurations of connectors and tasks are stored and shown with
their references, and resolved when a connector or task starts, or is checked.

Owns what is resolved, and how a resolved value is hidden again. Must not know the kinds of providers
(`base.config_providers`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from base.config_providers import ConfigProviders, Problem
from spark_jobs.connect.base.errors import ConfigError


class Providers:
    """The providers that a worker's file names."""

    def __init__(self, worker: Mapping[str, str]) -> None:
        """Raises ConfigError for a provider that does not exist."""
        self._providers = ConfigProviders(worker, os.environ)
        _raise_first(self._providers.problems)

    def resolved(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return settings without references. Raises ConfigError, which names the setting and the reference."""
        found, problems = self._providers.resolve(config)
        _raise_first(problems)
        return found


def with_references(
    stored: Mapping[str, str], resolved: Mapping[str, str], derived: Mapping[str, str]
) -> dict[str, str]:
    """Return settings that were derived from resolved ones, with the references that `stored` has for them."""
    found = dict(derived)
    for key, value in stored.items():
        if value != resolved[key] and found.get(key) == resolved[key]:
            found[key] = value
    return found


def masked(stored: Mapping[str, str], resolved: Mapping[str, str], text: str) -> str:
    """Return an error of resolved settings with references for the values, which may be secrets."""
    for key, value in stored.items():
        if value != resolved[key] and resolved[key]:
            text = text.replace(resolved[key], value)
    return text


def _raise_first(problems: Sequence[Problem]) -> None:
    for key, value, reason in problems:
        raise ConfigError(f"Invalid value {value} for configuration {key}: {reason}")
