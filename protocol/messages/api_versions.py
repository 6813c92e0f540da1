"""ApiVersions (18): returns the APIs and versions that a broker serves.

Clients send it first, so its response header never changes, and the response to an unknown version is v0. v3
adds the client's name and features, v4 allows supported features of minimum version 0.
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int16, int32, int64, message, since, string, struct


@message(ApiKey.API_VERSIONS, versions=range(0, 5), flexible=3)
class ApiVersionsRequest:
    client_software_name: string = since(3, ignorable=True, default="")
    client_software_version: string = since(3, ignorable=True, default="")


@struct
class ApiVersion:
    api_key: int16
    min_version: int16
    max_version: int16


@struct
class SupportedFeatureKey:
    name: string
    min_version: int16
    max_version: int16


@struct
class FinalizedFeatureKey:
    name: string
    max_version_level: int16
    min_version_level: int16


@message(ApiKey.API_VERSIONS, versions=range(0, 5), flexible=3)
class ApiVersionsResponse:
    error_code: int16 = 0
    api_keys: list[ApiVersion]
    throttle_time_ms: int32 = since(1, default=0)
    supported_features: list[SupportedFeatureKey] = since(3, tag=0, default=[])
    finalized_features_epoch: int64 = since(3, tag=1, default=-1)  # -1: none
    finalized_features: list[FinalizedFeatureKey] = since(3, tag=2, default=[])
    zk_migration_ready: boolean = since(3, tag=3, default=False)
