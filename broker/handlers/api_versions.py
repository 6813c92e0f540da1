"""ApiVersions: the APIs and versions that this broker serves.

Version notes: v3 client software name and version (KIP-511), features; the response header is version 0 always, and a
version that is not known gets a response in the layout of version 0, from the dispatcher.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from broker.handlers.declaration import Declaration
from broker.handlers.request_context import RequestContext
from config.broker import BrokerConfig
from protocol.api import Api
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[-.a-zA-Z0-9]*[a-zA-Z0-9])?")


API = Declaration(
    ApiKey.API_VERSIONS,
    is_served_before_login=True,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    config: BrokerConfig
    listed_apis: Sequence[Api]


def handle(services: Needs, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not SOFTWARE.fullmatch(name) or not SOFTWARE.fullmatch(version):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"client software name {name!r}, version {version!r}")
        context.channel.uses_software(name, version)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.versions.start, max_version=api.versions.stop - 1)
            for api in services.listed_apis
        ],
        # 0: features are known, none is finalized; -1: nothing is known of features.
        finalized_features_epoch=0 if services.config.inter_broker_protocol.has_features else -1,
    )


def failed(request: ApiVersionsRequest, context: RequestContext, code: ErrorCode) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code, api_keys=[])
