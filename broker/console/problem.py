"""The one exception of the console that becomes an HTTP response: a status and a sentence for people.

Must not know HTTP libraries.
"""

from __future__ import annotations

from http import HTTPStatus

from protocol.errors import ErrorCode, KafkaError

_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: HTTPStatus.NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.SECURITY_DISABLED: HTTPStatus.CONFLICT,
    ErrorCode.NON_EMPTY_GROUP: HTTPStatus.CONFLICT,
    ErrorCode.TOPIC_ALREADY_EXISTS: HTTPStatus.CONFLICT,
    ErrorCode.BROKER_NOT_AVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.NOT_CONTROLLER: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: HTTPStatus.GATEWAY_TIMEOUT,
}


class ProblemError(Exception):
    """A request of a browser fails with `status` and a message that says what was expected."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def bad_request(message: str) -> ProblemError:
    return ProblemError(HTTPStatus.BAD_REQUEST, message)


def not_found(message: str) -> ProblemError:
    return ProblemError(HTTPStatus.NOT_FOUND, message)


def of_kafka_error(error: KafkaError) -> ProblemError:
    """Return the problem that an error of Kafka's protocol is for a browser."""
    return of_code(error.code, error.message or "")


def of_code(code: int, message: str = "") -> ProblemError:
    name = ErrorCode(code).name
    return ProblemError(_STATUS.get(ErrorCode(code), HTTPStatus.BAD_REQUEST), f"{name}: {message}" if message else name)
