"""AlterUserScramCredentials: set and delete SCRAM credentials (KIP-554). Each user has a result."""

from __future__ import annotations

from typing import Protocol

from broker.handlers.declaration import METADATA_STORE, Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from broker.security.scram_credentials import Deletion, ScramCredentials, Upsertion
from controller.controller import Controller
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

API = Declaration(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    permissions=Permissions(cluster=Operation.ALTER),
    waits_for=METADATA_STORE,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    controller: Controller
    scram_credentials: ScramCredentials


async def handle(
    services: Needs, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    if not services.controller.is_active:
        return failed(request, context, ErrorCode.NOT_CONTROLLER)
    results = await services.scram_credentials.alter(
        [Deletion(it.name, it.mechanism) for it in request.deletions],
        [Upsertion(it.name, it.mechanism, it.iterations, it.salt, it.salted_password) for it in request.upsertions],
    )
    return AlterUserScramCredentialsResponse(results=[_result(user, error) for user, error in results.items()])


def failed(
    request: AlterUserScramCredentialsRequest, context: RequestContext, code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([it.name for it in request.upsertions] + [it.name for it in request.deletions])
    return AlterUserScramCredentialsResponse(results=[_result(user, KafkaError(code)) for user in users])


def _result(user: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_message="")
    return AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
