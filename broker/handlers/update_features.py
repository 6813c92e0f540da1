"""UpdateFeatures: raise or lower finalized feature levels (KIP-584).

Kafka 3.9 with ZooKeeper has no feature that could be finalized, and refuses every item with the reason. So does a
broker that supports none of those of Kafka 4 (`broker.cluster.features`).
"""

from __future__ import annotations

from typing import Protocol

from broker.cluster.features import ClusterFeatures
from broker.handlers.declaration import CONTROLLER, Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from config.broker import BrokerConfig
from controller.controller import Controller
from controller.machine.model import ApiError, FeatureChange
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE = 1
UPGRADE_TYPES = range(1, 4)
"""Upgrade, safe downgrade, unsafe downgrade."""


API = Declaration(
    ApiKey.UPDATE_FEATURES,
    permissions=Permissions(cluster=Operation.ALTER),
    waits_for=CONTROLLER,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    config: BrokerConfig
    controller: Controller
    features: ClusterFeatures


async def handle(services: Needs, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    if not services.controller.is_active:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if not services.config.inter_broker_protocol.has_features:
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Feature versioning system is disabled because the IBP is older than 2.7-IV0.",
            results=[],
        )
    updates = _first_of_each(request)
    supported = services.features.supported
    refused = {
        feature: ApiError(ErrorCode.INVALID_REQUEST, why)
        for feature, update in updates.items()
        if (why := _why_refused(update, is_supported=feature in supported))
    }
    changes = [_change(update) for feature, update in updates.items() if feature not in refused]
    changed = {}
    if changes:
        changed = await services.controller.update_features(changes, validate_only=request.validate_only)
    results = changed | refused
    return UpdateFeaturesResponse(
        results=[
            UpdatableFeatureResult(
                feature=feature, error_code=results[feature].error_code, error_message=results[feature].message
            )
            for feature in updates
        ],
    )


def _first_of_each(request: UpdateFeaturesRequest) -> dict[str, FeatureUpdateKey]:
    return {update.feature: update for update in reversed(request.feature_updates)}


def _change(update: FeatureUpdateKey) -> FeatureChange:
    return FeatureChange(update.feature, update.max_version_level, _is_downgrade(update))


def _is_downgrade(update: FeatureUpdateKey) -> bool:
    return update.allow_downgrade or update.upgrade_type != UPGRADE


def _why_refused(update: FeatureUpdateKey, *, is_supported: bool) -> str | None:
    if not update.feature:
        return "Feature name can not be empty."
    if update.upgrade_type not in UPGRADE_TYPES:
        return "Received unknown upgrade type."
    if is_supported:
        return None
    if update.max_version_level >= 1:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if _is_downgrade(update):
        return "Can not delete non-existing finalized feature."
    return (
        f"Can not provide versionLevel: {update.max_version_level} less than 1 without setting the SAFE "
        "downgradeType in the request."
    )
