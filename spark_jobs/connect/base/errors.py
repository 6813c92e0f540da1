"""Errors of connectors and workers. Their texts are for users of the REST interface and readers of a task's trace."""

from __future__ import annotations


class ConnectError(Exception):
    """Something failed for good: the task or connector that raises it ends as FAILED."""


class RetriableError(ConnectError):
    """The same call may succeed later: `poll` and `put` are called again, with the same records."""


class DataError(ConnectError):
    """A value does not fit its schema, or bytes are not in a converter's format."""


class ConfigError(ConnectError):
    """A setting is missing or invalid. The text names the setting and what was expected."""


class NotFoundError(ConnectError):
    """There is no connector, task or plug-in of this name."""


class AlreadyExistsError(ConnectError):
    """There is a connector of this name."""
