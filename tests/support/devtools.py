"""A connection to one page of Chromium, in the DevTools protocol.

Owns: requests, their responses, and the events that were received in between. Must not know what a page shows.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import json
from typing import Any

import websocket

RESPONSE_S = 60.0


class DevToolsError(AssertionError):
    """Chromium refused a command, or a script in the page failed."""


class DevTools:
    """Sends commands to one page, which Chromium processes in order."""

    def __init__(self, url: str) -> None:
        self._socket = websocket.create_connection(url, timeout=RESPONSE_S, suppress_origin=True)
        self._last_id = 0
        self._events: list[dict[str, Any]] = []

    def send(self, method: str, **parameters: object) -> Any:
        """Return the result of a command. Raises DevToolsError."""
        return self.send_all([(method, parameters)])[0]

    def send_all(self, commands: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        """Return the results of several commands, which are sent together. Raises DevToolsError."""
        first = self._last_id + 1
        for method, parameters in commands:
            self._last_id += 1
            self._socket.send(json.dumps({"id": self._last_id, "method": method, "params": parameters}))
        results = {}
        while len(results) < len(commands):
            message = json.loads(self._socket.recv())
            if "id" not in message:
                self._events.append(message)
            elif "error" in message:
                raise DevToolsError(f"{commands[message['id'] - first]}: {message['error']}")
            else:
                results[message["id"]] = message["result"]
        return [results[each] for each in sorted(results)]

    def evaluate(self, script: str, *arguments: object) -> Any:
        """Return what a script returns, which finds its arguments in `arguments`. Raises DevToolsError."""
        expression = f"(function () {{ {script}\n}}).apply(null, {json.dumps(arguments)})"
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise DevToolsError(f"{result['exceptionDetails']} in {script}")
        return result["result"].get("value")

    def events(self) -> list[dict[str, Any]]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        self._socket.close()
