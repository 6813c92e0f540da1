"""A change that is shown before it is made, and the token that confirms exactly what was shown.

Owns the form of a preview and of a result. Must not know what is changed.

A request for a change without a token is a preview: it changes nothing, and its response has a token for what it shows.
The request is repeated with that token. If it would now change something else, because another client was faster, it
is refused, and the preview has to be looked at again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Final, TypedDict

from base.dataclass import dataclass
from broker.console.problem import ProblemError, of_code

TOKEN_DIGITS: Final = 16
NO_LONGER: Final = "nothing was changed: this is no longer what the preview showed, so show it again"
TIMEOUT_MS: Final = 15_000
"""How long a broker may take for a change; less than the time of a request to the console."""


class Row(TypedDict):
    """One thing that is changed. Null: it does not exist before, or after. `problem`: why it was not changed."""

    subject: str
    before: str | None
    after: str | None
    problem: str


class Change(TypedDict):
    """What a request changes, or has changed. `confirm` is the token of a preview."""

    is_done: bool
    confirm: str
    rows: list[Row]
    warnings: list[str]


class Confirmation(TypedDict):
    """A change without further parameters. `confirm` is the token of its preview, or empty for a preview."""

    confirm: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that was not made yet."""

    rows: list[Row]
    perform: Callable[[], Awaitable[Sequence[str]]]
    """Makes the change; returns for each row why it was not changed, empty if it was. Raises ProblemError."""
    warnings: Sequence[str] = ()
    token: str = ""
    """What is confirmed; empty: the rows."""


def change_row(subject: str, before: str | None, after: str | None) -> Row:
    return Row(subject=subject, before=before, after=after, problem="")


async def changed(plan: Plan, confirm: str) -> Change:
    """Return the preview of a plan, or make the change that `confirm` names. Raises ProblemError."""
    token = plan.token or _token(plan.rows)
    if not confirm:
        return Change(is_done=False, confirm=token, rows=plan.rows, warnings=list(plan.warnings))
    if confirm != token:
        raise ProblemError(HTTPStatus.CONFLICT, NO_LONGER)
    problems = await plan.perform()
    rows = [Row({**each, "problem": problem}) for each, problem in zip(plan.rows, problems, strict=True)]
    return Change(is_done=True, confirm="", rows=rows, warnings=[])


def require_success(code: int, message: str | None) -> None:
    """Raise ProblemError for an error code of a response."""
    if code:
        raise of_code(code, message or "")


def _token(rows: Sequence[Row]) -> str:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:TOKEN_DIGITS]
