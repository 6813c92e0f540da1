"""DescribeUserScramCredentials: which users may log in by SCRAM, with how many iterations, never with what (KIP-554).

Only the controller serves it, because only the controller changes credentials.
"""

from __future__ import annotations

from typing import Protocol

from broker.handlers.declaration import METADATA_STORE, Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from broker.security.scram_credentials import Iterations, ScramCredentials
from controller.controller import Controller
from protocol.api_key import ApiKey
from protocol.errors import ERRORS, ErrorCode, KafkaError
from protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

API = Declaration(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    permissions=Permissions(cluster=Operation.DESCRIBE),
    waits_for=METADATA_STORE,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    controller: Controller
    scram_credentials: ScramCredentials


async def handle(
    services: Needs, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    if not services.controller.is_active:
        return failed(request, context, ErrorCode.NOT_CONTROLLER)
    results = await services.scram_credentials.describe([user.name for user in request.users or ()])
    return DescribeUserScramCredentialsResponse(
        error_message="", results=[_result(user, outcome) for user, outcome in results.items()]
    )


def failed(
    request: DescribeUserScramCredentialsRequest, context: RequestContext, code: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    """As in Kafka, each user has the code as well."""
    message = ERRORS[code].message
    results = [
        DescribeUserScramCredentialsResult(user=user.name, error_code=code, error_message=message)
        for user in request.users or ()
    ]
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=message, results=results)


def _result(user: str, outcome: Iterations | KafkaError) -> DescribeUserScramCredentialsResult:
    if isinstance(outcome, KafkaError):
        return DescribeUserScramCredentialsResult(user=user, error_code=outcome.code, error_message=outcome.message)
    return DescribeUserScramCredentialsResult(
        user=user,
        error_message="",
        credential_infos=[
            CredentialInfo(mechanism=mechanism.number, iterations=iterations)
            for mechanism, iterations in outcome.items()
        ],
    )
