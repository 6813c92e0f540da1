"""The process that hosts brokers, from the side of the test: commands, signals, and its end.

Owns the errors of commands. Must not know what a command does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from milena_broker.testing.control import Control, NoResponseError
from milena_broker.testing.nursery import Kind, NurseryError, new_host

__tracebackhide__ = True

START_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 60.0
RESPONSE_DELAY_MAX_S = 1.0
"""How much longer than its time limit the response to a command may take, so that the broker reports what it lacks."""
_LOG_LINES = 20


class BrokerError(Exception):
    """The broker did not start, does not respond, or refused a command. The text names the reason."""


class RefusedError(BrokerError):
    """The broker runs, and refused a command."""


class HostedProcess:
    """A process that hosts brokers, and its commands. Methods raise BrokerError."""

    def __init__(self, log: Path, kind: Kind = Kind.ALONE) -> None:
        """Start it; `kind` says what it has to prepare."""
        self._log = log
        try:
            self._host = new_host(log, kind)
        except NurseryError as error:
            raise BrokerError(str(error)) from error
        self._control = Control(self._host.control)
        self._in_order = threading.Lock()
        self.has_ended = False
        """Whether it has not responded as a process that lives does; what is left to do is `kill`."""

    @property
    def pid(self) -> int:
        return self._host.pid

    def send_signal(self, number: signal.Signals) -> None:
        self._host.send_signal(number)

    def kill(self) -> None:
        """End the process with SIGKILL; return when it has ended."""
        self._host.kill()

    def exchange(self, message: Mapping[str, object], timeout_s: float) -> Any:
        """Send a command and return its result. Raises RefusedError for a command that the process refuses."""
        with self._in_order:
            try:
                response = self._control.exchange(message, timeout_s)
            except NoResponseError:
                raise BrokerError(f"no response within {timeout_s:.3g} s{self._log_tail()}") from None
            except TimeoutError as error:
                self.has_ended = True  # a part of the command was sent
                raise BrokerError(f"the broker reads no command within {timeout_s:g} s{self._log_tail()}") from error
            except OSError as error:
                self.has_ended = True
                raise BrokerError(f"the broker has ended{self._log_tail()}") from error
        if "error" in response:
            raise RefusedError(response["error"])
        return response["result"]

    def _log_tail(self) -> str:
        lines = last_lines(self._log, _LOG_LINES)
        return "; its log ends:\n" + "\n".join(lines) if lines else ""


def last_lines(log: Path, count: int) -> list[str]:
    """Return the last lines of a log; none if it cannot be read."""
    try:
        return log.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return []
