"""AlterUserScramCredentials (51): creates, changes and deletes SCRAM credentials (KIP-554)."""

from protocol.api_key import ApiKey
from protocol.schema import bytes_, int8, int16, int32, message, string, struct


@struct
class ScramCredentialDeletion:
    name: string
    mechanism: int8  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512


@struct
class ScramCredentialUpsertion:
    name: string
    mechanism: int8  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
    iterations: int32
    salt: bytes_
    salted_password: bytes_


@message(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=range(0, 1), flexible=0)
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@struct
class AlterUserScramCredentialsResult:
    user: string
    error_code: int16 = 0
    error_message: string | None = None


@message(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=range(0, 1), flexible=0)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult]
