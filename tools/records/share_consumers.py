"""What the tools share that consume as a member of a share group: the client library's consumer and its errors.

Must not know options, or what happens to records.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tools.base.command_line import UsageError
from tools.client import client_library as library
from tools.client.client_settings import library_settings

_ACKNOWLEDGEMENT_MODE = "share.acknowledgement.mode"
_ONLY_SHARE = (_ACKNOWLEDGEMENT_MODE, "max.poll.records")
"""Settings that the library's other consumers do not have."""

EXPLICIT: Mapping[str, str] = {_ACKNOWLEDGEMENT_MODE: "explicit"}
"""The setting of a consumer that acknowledges each record."""


def new_share_consumer(
    settings: Mapping[str, str], logger: logging.Logger, library_only: Mapping[str, Any] | None = None
) -> Any:
    """Return a consumer with settings under Java names, and others under the library's names. Raises UsageError."""
    own = {key: value for key, value in settings.items() if key in _ONLY_SHARE}
    rest = {key: value for key, value in settings.items() if key not in own}
    try:
        return library.ShareConsumer(
            {
                **library_settings(rest, is_consumer=True),
                **own,
                "error_cb": _FailedLogin(),
                **(library_only or {}),
            },
            logger=logger,
        )
    except (library.KafkaException, ValueError) as error:
        raise UsageError(error.args[0].str() if isinstance(error, library.KafkaException) else str(error)) from error


class _FailedLogin:
    """Gets the errors of a consumer. The first failed login is raised, out of the method that reports it.

    The library would try again without end. `close` must not raise the next one.
    """

    def __init__(self) -> None:
        self._is_raised = False

    def __call__(self, error: Any) -> None:
        if error.code() == library.KafkaError._AUTHENTICATION and not self._is_raised:
            self._is_raised = True
            raise library.KafkaException(error)


def poll(consumer: Any, timeout_s: float) -> list[Any]:
    """Return the records that arrive within the timeout. Raises KafkaException for an error that does not pass."""
    passing = (
        library.KafkaError._TRANSPORT,
        library.KafkaError._ALL_BROKERS_DOWN,
        library.KafkaError._MAX_POLL_EXCEEDED,
        library.KafkaError._UNKNOWN_TOPIC,
        library.KafkaError.UNKNOWN_TOPIC_OR_PART,
    )
    messages = list(consumer.poll(timeout_s))
    errors = [error for message in messages if (error := message.error()) is not None]
    if final := [error for error in errors if error.code() not in passing]:
        raise library.KafkaException(final[0])
    return [message for message in messages if message.error() is None]
