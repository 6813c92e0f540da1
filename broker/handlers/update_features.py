"""UpdateFeatures: raise or lower finalized feature levels (KIP-584).

A cluster that keeps its metadata in ZooKeeper's form has no feature that could be finalized, so every item is refused
with the reason.
"""

from __future__ import annotations

from typing import Protocol

from broker.handlers.declaration import Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from config.broker import BrokerConfig
from controller.controller import Controller
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
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    config: BrokerConfig
    controller: Controller


def handle(services: Needs, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    if not services.controller.is_active:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if not services.config.inter_broker_protocol.has_features:
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Feature versioning system is disabled because the IBP is older than 2.7-IV0.",
            results=[],
        )
    return UpdateFeaturesResponse(
        results=[
            UpdatableFeatureResult(
                feature=feature, error_code=ErrorCode.INVALID_REQUEST, error_message=_why_refused(update)
            )
            for feature, update in _first_of_each(request).items()
        ],
    )


def _first_of_each(request: UpdateFeaturesRequest) -> dict[str, FeatureUpdateKey]:
    return {update.feature: update for update in reversed(request.feature_updates)}


def _why_refused(update: FeatureUpdateKey) -> str:
    if not update.feature:
        return "Feature name can not be empty."
    if update.upgrade_type not in UPGRADE_TYPES:
        return "Received unknown upgrade type."
    if update.max_version_level >= 1:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if update.allow_downgrade or update.upgrade_type != UPGRADE:
        return "Can not delete non-existing finalized feature."
    return (
        f"Can not provide versionLevel: {update.max_version_level} less than 1 without setting the SAFE "
        "downgradeType in the request."
    )
