"""DescribeUserScramCredentials (50): returns the SCRAM mechanisms of users (KIP-554)."""

from protocol.api_key import ApiKey
from protocol.schema import int8, int16, int32, message, string, struct


@struct
class UserName:
    name: string


@message(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=range(0, 1), flexible=0)
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None  # None: all


@struct
class CredentialInfo:
    mechanism: int8  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
    iterations: int32


@struct
class DescribeUserScramCredentialsResult:
    user: string
    error_code: int16 = 0
    error_message: string | None = None
    credential_infos: list[CredentialInfo] = []


@message(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=range(0, 1), flexible=0)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    results: list[DescribeUserScramCredentialsResult] = []
