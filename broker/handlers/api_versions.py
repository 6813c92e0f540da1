"""ApiVersions: the APIs and versions that this broker serves; those of telemetry only while it has subscriptions.

Version notes: v3 client software name and version (KIP-511), features; the response header is version 0 always, and a
version that is not known gets a response in the layout of version 0, from the dispatcher.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from broker.cluster.features import ClusterFeatures
from broker.handlers.declaration import Declaration
from broker.handlers.request_context import RequestContext
from broker.telemetry.client_instances import ClientInstances
from protocol.api import Api
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[-.a-zA-Z0-9]*[a-zA-Z0-9])?")


OF_TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""Listed only while there are subscriptions. Otherwise each client would send one of them for nothing, and librdkafka
logs a line when it does. Kafka too lists them only if it has a receiver of metrics."""

FIRST_VERSION_WITH_LEVEL_0 = 4
"""Older clients cannot read a supported feature whose lowest level is 0, so it is left out for them."""


API = Declaration(
    ApiKey.API_VERSIONS,
    is_served_before_login=True,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    features: ClusterFeatures
    listed_apis: Sequence[Api]
    client_instances: ClientInstances


def handle(services: Needs, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not SOFTWARE.fullmatch(name) or not SOFTWARE.fullmatch(version):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"client software name {name!r}, version {version!r}")
        context.channel.uses_software(name, version)
    features = services.features
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.versions.start, max_version=api.versions.stop - 1)
            for api in services.listed_apis
            if api.key not in OF_TELEMETRY or services.client_instances.subscriptions
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=versions[0], max_version=versions[-1])
            for name, versions in features.supported.items()
            if versions[0] > 0 or context.api_version >= FIRST_VERSION_WITH_LEVEL_0
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.finalized.items()
        ],
    )


def failed(request: ApiVersionsRequest, context: RequestContext, code: ErrorCode) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code, api_keys=[])
