"""UpdateFeatures (57): changes finalized features of the cluster (KIP-584).

v1 adds validation only, and the kind of change instead of a flag.
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int8, int16, int32, message, since, string, struct


@struct
class FeatureUpdateKey:
    feature: string
    max_version_level: int16
    allow_downgrade: boolean = since(0, until=0, default=False)
    upgrade_type: int8 = since(1, default=1)  # 1: upgrade, 2: safe downgrade, 3: unsafe downgrade


@message(ApiKey.UPDATE_FEATURES, versions=range(0, 2), flexible=0)
class UpdateFeaturesRequest:
    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: boolean = since(1, default=False)


@struct
class UpdatableFeatureResult:
    feature: string
    error_code: int16 = 0
    error_message: string | None = None


@message(ApiKey.UPDATE_FEATURES, versions=range(0, 2), flexible=0)
class UpdateFeaturesResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    results: list[UpdatableFeatureResult] = []
