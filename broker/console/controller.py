"""Which broker is asked for what only the controller does.

Owns the one sentence if there is none. Must not know HTTP.
"""

from __future__ import annotations

from broker.console.console import Console
from broker.console.problem import of_code
from protocol.errors import ErrorCode


def controller_of(console: Console) -> int:
    """Return the broker that creates, changes and deletes topics and credentials. Raises ProblemError."""
    controller = console.services.metadata_cache.controller_id
    if controller < 0:
        raise of_code(ErrorCode.BROKER_NOT_AVAILABLE, "no broker is the controller: try again")
    return controller
