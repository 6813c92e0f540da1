"""UpdateFeatures: the levels of features are raised and lowered (KIP-584)."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.in_process_cluster import until

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
FEATURE = "transaction.version"
NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION


async def update(
    broker: InProcessBroker, *changes: tuple[str, int, int], validate_only: bool = False
) -> list[tuple[str, ErrorCode]]:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
            for feature, level, kind in changes
        ],
        validate_only=validate_only,
    )
    response = await broker.ask(request)
    assert not response.error_code
    return [(result.feature, ErrorCode(result.error_code)) for result in response.results]


async def finalized(broker: InProcessBroker) -> dict[str, int]:
    response = await broker.ask(ApiVersionsRequest(client_software_name="probe", client_software_version="1"), 4)
    return {each.name: each.max_version_level for each in response.finalized_features}


async def test_levels_are_lowered_and_raised(served: InProcessBroker) -> None:
    steps = [(1, SAFE_DOWNGRADE), (0, UNSAFE_DOWNGRADE), (2, UPGRADE)]
    for epoch, (level, kind) in enumerate(steps, 1):
        assert await update(served, (FEATURE, level, kind)) == [(FEATURE, NONE)]
        await until(lambda epoch=epoch: served.services.features.epoch == epoch)  # type: ignore[misc]
        assert await finalized(served) == ({FEATURE: level} if level else {})


async def test_a_chosen_level_survives_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "broker") as broker:
        await update(broker, (FEATURE, 0, SAFE_DOWNGRADE))
    async with running_broker(tmp_path / "broker") as broker:
        assert await finalized(broker) == {}


@pytest.mark.parametrize(
    ("level", "kind", "code"),
    [
        (1, UPGRADE, INVALID),
        (3, UPGRADE, INVALID),
        (-1, SAFE_DOWNGRADE, INVALID),
        (2, UPGRADE, NONE),
        (2, SAFE_DOWNGRADE, NONE),
        (1, 4, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_changes_that_are_refused_or_change_nothing(
    served: InProcessBroker, level: int, kind: int, code: ErrorCode
) -> None:
    assert await update(served, (FEATURE, level, kind)) == [(FEATURE, code)]
    assert await finalized(served) == {FEATURE: 2}


async def test_a_lower_level_is_not_raised_by_a_downgrade(served: InProcessBroker) -> None:
    await update(served, (FEATURE, 0, SAFE_DOWNGRADE))
    assert await update(served, (FEATURE, 1, SAFE_DOWNGRADE)) == [(FEATURE, INVALID)]


async def test_each_change_of_a_request_has_its_own_result(served: InProcessBroker) -> None:
    change = (FEATURE, 0, SAFE_DOWNGRADE)
    results = await update(served, ("metadata.version", 21, UPGRADE), change)
    assert dict(results) == {"metadata.version": ErrorCode.INVALID_REQUEST, FEATURE: NONE}
    await until(lambda: served.services.features.epoch == 1)
    assert await finalized(served) == {}


async def test_a_request_that_only_validates_changes_nothing(served: InProcessBroker) -> None:
    assert await update(served, (FEATURE, 0, SAFE_DOWNGRADE), validate_only=True) == [(FEATURE, NONE)]
    assert await finalized(served) == {FEATURE: 2}
    assert served.services.features.epoch == 0
