"""SCRAM credentials of users are set and deleted.

Owns which requests make up such a change, and its preview. Must not know HTTP. The password is salted here, as an
administrator's client does it; neither previews nor results have it.
"""

from __future__ import annotations

import secrets
from typing import Final, Literal, TypedDict

from broker.console.changes.change import TIMEOUT_MS, Change, Plan, change_row, changed, require_success
from broker.console.console import Console
from broker.console.controller import controller_of
from broker.console.problem import bad_request
from broker.network.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from protocol.scram_credentials import MECHANISMS, SALT_SIZE, salted_credential

PASSWORD_LENGTH_MAX: Final = 1_000

Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]


class UserChange(TypedDict):
    """A credential to set, or to delete without regard to `iterations` and `password`.

    `confirm` is the token of a preview.
    """

    action: Literal["set", "delete"]
    user: str
    mechanism: Mechanism
    iterations: int
    password: str
    confirm: str


async def change_user(console: Console, *, body: UserChange) -> Change:
    """Set or delete a credential. Raises ProblemError."""
    user, mechanism, iterations = body["user"], body["mechanism"], body["iterations"]
    is_setting = body["action"] == "set"
    if not user:
        raise bad_request("user is empty, expected a name")
    if is_setting and not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise bad_request(f"iterations={iterations}: expected a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if is_setting and not 0 < len(body["password"]) <= PASSWORD_LENGTH_MAX:
        raise bad_request(f"the password has {len(body['password'])} characters, expected 1 to {PASSWORD_LENGTH_MAX}")
    before = await _iterations(console, user, MECHANISMS[mechanism])
    if before is None and not is_setting:
        raise bad_request(f"user {user!r} has no credential for {mechanism}")
    after = f"{iterations} iterations, new password" if is_setting else None
    rows = [change_row(f"user {user}, {mechanism}", None if before is None else f"{before} iterations", after)]

    async def perform() -> list[str]:
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[])
        if is_setting:
            salt = secrets.token_bytes(SALT_SIZE)
            credential = await console.services.cpu_pool.run(
                lambda: salted_credential(user, mechanism, body["password"], salt, iterations)
            )
            request.upsertions.append(credential)
        else:
            request.deletions.append(ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism]))
        response = await console.client.ask(controller_of(console), request, timeout_ms=TIMEOUT_MS)
        require_success(response.results[0].error_code, response.results[0].error_message)
        return [""]

    return await changed(Plan(rows, perform), body["confirm"])


async def _iterations(console: Console, user: str, mechanism: int) -> int | None:
    """Return the iterations of a credential; None if the user has none. Raises ProblemError."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=user)])
    response = await console.client.ask(controller_of(console), request)
    require_success(response.error_code, response.error_message)
    (result,) = response.results
    if result.error_code != ErrorCode.RESOURCE_NOT_FOUND:
        require_success(result.error_code, result.error_message)
    return next((each.iterations for each in result.credential_infos if each.mechanism == mechanism), None)
