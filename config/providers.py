"""The config providers of a broker: references in its settings to values stored elsewhere (`base.config_providers`).

Owns the errors of a broker's settings for them, and the environment that they read.
"""

import os
from collections.abc import Mapping

from config.definition import ConfigError


def resolve(settings: Mapping[str, str]) -> tuple[dict[str, str], list[ConfigError]]:
    """Return settings with their references replaced, and what could not be."""
    if not settings.get("config.providers"):
        return dict(settings), []
    from base.config_providers import ConfigProviders  # few brokers have one

    providers = ConfigProviders(settings, os.environ)
    resolved, problems = providers.resolve(settings)
    return resolved, [ConfigError(*each) for each in (*providers.problems, *problems)]
